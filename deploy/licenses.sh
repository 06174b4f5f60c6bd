#!/bin/sh
# Copies the licences of the modules that programs are built from: deploy/licenses.sh FOLDER PACKAGE…
# Most of these licences ask for a copy with each binary that is handed on, so the images have the folder. It has
# a folder for Go and one for each module. The name of the latter, with the version, is the address of the source.
set -eu

to=$1
shift
mkdir -p "$to/go"
cp "${0%/*}/../LICENSE" "$to/"
cp "$(go env GOROOT)/LICENSE" "$to/go/"

# A module that go.mod replaces by another one has that one's licence; a folder of this repository, this repository's.
module='{{with .Module}}{{$m := .}}{{with .Replace}}{{$m = .}}{{end}}{{with $m.Version}}{{$m.Path}}@{{.}}|{{$m.Dir}}|{{$.Dir}}{{end}}{{end}}'
packages=$(go list -deps -f "$module" "$@")
while IFS='|' read -r module top folder; do
  # A package may have a licence of its own besides that of its module.
  while :; do
    copy=$to/$module${folder#"$top"}
    for file in "$folder"/LICEN[CS]E* "$folder"/[Ll]icen[cs]e "$folder"/[Ll]icen[cs]e.[mt]* "$folder"/COPYING* "$folder"/NOTICE* "$folder"/PATENTS*; do
      if [ -f "$file" ] && ! [ -e "$copy/${file##*/}" ]; then
        mkdir -p "$copy"
        cp "$file" "$copy/"
      fi
    done
    [ "$folder" != "$top" ] || break
    folder=${folder%/*}
  done
  [ -d "$to/$module" ] || { echo "licenses: none in $module" >&2; exit 1; }
done <<EOF
$packages
EOF
