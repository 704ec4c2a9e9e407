
# Names of services and namespaces come from the cluster.
_elasti_services() {
    local -a names; names=(${(f)"$(elasti complete services -- "${(@)words[1,CURRENT-1]}" "" 2>/dev/null)"})
    compadd -a names
}
_elasti_namespaces() {
    local -a names; names=(${(f)"$(elasti complete namespaces 2>/dev/null)"})
    compadd -a names
}
