
# Names of services and namespaces come from the cluster.
complete -c elasti -n "__fish_seen_subcommand_from list ls pause resume sleep wake why" -f -a "(elasti complete services -- (commandline -opc) \"\" 2>/dev/null)"
complete -c elasti -s n -l namespace -x -a "(elasti complete namespaces 2>/dev/null)"
