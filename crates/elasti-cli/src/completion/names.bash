
# Names of services and namespaces come from the cluster; everything else from the function above.
_elasti_names() {
    local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" where=() i
    for ((i = 1; i + 1 < COMP_CWORD; i++)); do
        case "${COMP_WORDS[i]}" in
            -n|--namespace|--context|--kubeconfig) where+=("${COMP_WORDS[i]}" "${COMP_WORDS[i+1]}") ;;
        esac
    done
    case "$prev" in
        -n|--namespace)
            COMPREPLY=($(compgen -W "$(elasti complete namespaces "${where[@]}" 2>/dev/null)" -- "$cur"))
            return ;;
    esac
    if [[ $COMP_CWORD -gt 1 && $cur != -* && $prev != -* ]]; then
        case "${COMP_WORDS[1]}" in
            list|ls|pause|resume|sleep|wake|why)
                COMPREPLY=($(compgen -W "$(elasti complete services "${where[@]}" 2>/dev/null)" -- "$cur"))
                return ;;
        esac
    fi
    _elasti "$@"
}
complete -F _elasti_names -o bashdefault -o default elasti
