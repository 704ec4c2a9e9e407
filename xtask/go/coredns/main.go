// CoreDNS with its usual plugins, as its own main starts it.
// It never adds behaviour of its own.
package main

import (
	_ "github.com/coredns/coredns/core/plugin"
	"github.com/coredns/coredns/coremain"
)

func main() {
	coremain.Run()
}
