#!/usr/bin/env bash
# Makes stand-ins for the base images of Dockerfile and docker-compose.yml, under the
# same names, from what this machine has installed: for tests where no registry of
# images can be reached. Elsewhere they are not needed.
#
# It needs a container engine, Go, Postgres's server, Java and the Pub/Sub emulator of
# the Google Cloud CLI, on Linux with glibc. An image of that name that is no stand-in
# is left as it is.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/../.."

label=lockstep.stand-in
certificates=/etc/ssl/certs/ca-certificates.crt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Nothing below needs the newer builder, which not every engine comes with.
docker buildx version >/dev/null 2>&1 || export DOCKER_BUILDKIT=0

fail() {
  echo "standins: $*" >&2
  exit 1
}

# put ROOT FILE…: copies files to where they stand here, with the libraries that they
# are linked to.
put() {
  local root=$1 file library
  shift
  for file in "$@"; do
    [ -e "$root$file" ] || install -D "$file" "$root$file"
    while read -r library; do
      [ -e "$root$library" ] || install -D "$library" "$root$library"
    done < <(ldd "$file" 2>/dev/null | grep -o '/[^ ]*')
  done
}

# skeleton ROOT: what every image has.
skeleton() {
  mkdir -p "$1/etc/ssl/certs" "$1/root" "$1/usr/local/bin"
  mkdir -m 1777 "$1/tmp"
  printf '%s\n' root:x:0:0:root:/root:/bin/sh postgres:x:999:999::/:/bin/sh nonroot:x:65532:65532::/:/ >"$1/etc/passwd"
  printf '%s\n' root:x:0: postgres:x:999: nonroot:x:65532: >"$1/etc/group"
  cp -L "$certificates" "$1/etc/ssl/certs/"
}

with_shell() {
  skeleton "$1"
  put "$1" /bin/sh
}

# image NAME ROOT: makes the image of ROOT; further lines of its Dockerfile from stdin.
image() {
  { printf 'FROM scratch\nCOPY . /\nLABEL %s=1\n' "$label"; cat; } >"$2.dockerfile"
  docker build --quiet --tag "$1" --file "$2.dockerfile" "$2" >/dev/null
  rm -rf "$2"
  echo "standins: $1"
}

# wanted NAME: is there no such image yet, or an old stand-in?
wanted() {
  [ -n "$1" ] || fail "no name of an image where one was looked for"
  docker image inspect "$1" >/dev/null 2>&1 || return 0
  [ "$(docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$1")" = 1 ] && return 0
  echo "standins: $1 is here already"
  return 1
}

go_image() {
  local root=$work/go
  with_shell "$root"
  put "$root" /bin/cp /bin/mkdir
  mkdir -p "$root/usr/local/go"
  cp -a "$(go env GOROOT)/." "$root/usr/local/go/"
  rm -rf "$root/usr/local/go"/{test,api,doc}
  image "$1" "$root" <<<'ENV GOPATH=/go PATH=/usr/local/go/bin:/go/bin:/bin'
}

static_image() {
  skeleton "$work/static"
  image "$1" "$work/static" <<<'USER 65532:65532'
}

postgres_image() {
  local root=$work/postgres home version library
  home=$(find /usr/lib/postgresql -mindepth 1 -maxdepth 1 | sort -V | tail -1)
  [ -x "$home/bin/postgres" ] || fail "no Postgres under /usr/lib/postgresql"
  version=$(basename "$home")
  with_shell "$root"
  put "$root" "$home"/bin/{postgres,initdb,pg_isready,psql}
  for library in "$home"/lib/*.so; do # without the compiler, which is the largest by far
    case $library in *llvmjit*) ;; *) put "$root" "$library" ;; esac
  done
  mkdir -p "$root/usr/share/postgresql" "$root/usr/lib/locale" "$root/var/lib/postgresql/data" "$root/run/postgresql"
  ln -s /run "$root/var/run"
  cp -a "/usr/share/postgresql/$version" "$root/usr/share/postgresql/"
  cp -a /usr/share/zoneinfo "$root/usr/share/"
  cp -a /usr/lib/locale/C.utf8 "$root/usr/lib/locale/"
  cat >"$root/usr/local/bin/start" <<'EOF'
#!/bin/sh
set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --username=postgres --auth="$POSTGRES_HOST_AUTH_METHOD" $POSTGRES_INITDB_ARGS
  echo "host all all all $POSTGRES_HOST_AUTH_METHOD" >>"$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE \"$POSTGRES_DB\"" | postgres --single -j postgres
fi
exec postgres -c listen_addresses='*'
EOF
  chmod +x "$root/usr/local/bin/start"
  image "$1" "$root" <<EOF
COPY --chown=999:999 var/lib/postgresql /var/lib/postgresql
COPY --chown=999:999 run /run
ENV PATH=$home/bin:/usr/local/bin:/bin PGDATA=/var/lib/postgresql/data
USER 999:999
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
ENTRYPOINT ["/usr/local/bin/start"]
EOF
}

emulator_image() {
  local root=$work/emulator java jar
  java=$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")
  jar=$(find /usr/lib/google-cloud-sdk "$HOME/google-cloud-sdk" -name 'cloud-pubsub-emulator-*-all.jar' 2>/dev/null | sort -V | tail -1 || true)
  [ -n "$jar" ] || fail "no Pub/Sub emulator: install google-cloud-cli-pubsub-emulator"
  with_shell "$root"
  tar -ch --exclude=src.zip "$java"/{bin,conf,lib} 2>/dev/null | tar -x -C "$root"
  put "$root" "$java/bin/java" "$java"/lib/*.so "$java"/lib/server/*.so
  put "$root" "$jar"
  cat >"$root/usr/local/bin/gcloud" <<EOF
#!/bin/sh
# gcloud beta emulators pubsub start --host-port=HOST:PORT
for argument; do
  case \$argument in --host-port=*) at=\${argument#*=} ;; esac
done
exec $java/bin/java -jar $jar "--host=\${at%:*}" "--port=\${at##*:}"
EOF
  chmod +x "$root/usr/local/bin/gcloud"
  image "$1" "$root" <<<'ENV PATH=/usr/local/bin:/bin'
}

docker_image() {
  with_shell "$work/docker"
  put "$work/docker" "$(command -v docker)"
  image "$1" "$work/docker" <<EOF
ENV PATH=$(dirname "$(command -v docker)"):/bin
EOF
}

# The names stand in the files that use them.
standin() {
  local make=$1 name
  name=$(sed -nE "s/$3/\\1/p" "$2" | head -1)
  if wanted "$name"; then "$make" "$name"; fi
}

standin go_image Dockerfile '^ARG GO_IMAGE=(.*)'
standin static_image Dockerfile '^ARG BASE_IMAGE=(.*)'
standin postgres_image docker-compose.yml '^ *image: (.*postgres:.*)'
standin emulator_image docker-compose.yml '^ *image: (.*-emulators)'
standin docker_image docker-compose.yml '^ *image: (docker:.*-cli)'
