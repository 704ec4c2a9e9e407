// Package ext stands for the module of Traefik's own that its module names by a path and does not contain: room for
// more fields of its configuration, of which Traefik itself has none.
package ext

type HTTP struct{}

type Router struct{}
