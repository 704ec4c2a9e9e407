#!/bin/sh
# kubectl runs this for `kubectl elasti`. Save it as kubectl_complete-elasti in your PATH, executable.
exec elasti complete kubectl -- "$@"
