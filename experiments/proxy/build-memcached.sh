#!/bin/sh
# Builds memcached 1.6.38 with its built-in proxy, a rival of this experiment (Debian packages it without the proxy).
# The source is Debian's package; apt checks its signature, and this script its hash. About a minute.
#
#     sh experiments/proxy/build-memcached.sh [FOLDER]      # default: target/peers
#
# The programs are then FOLDER/memcached-proxy (with its configuration library beside it).
set -eu
version=1.6.38
hash=074076ab3e889e16e763c6a3e5cadacc6696979dbb8c473bbf871d498b19b1a0
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${1:-$root/target/peers}"
to=$(cd "${1:-$root/target/peers}" && pwd)
need() {
    command -v "$1" >/dev/null 2>&1 || [ -e "$1" ] || { echo "$1 is missing: apt-get install $2" >&2; exit 1; }
}
need apt-get "apt (this script uses Debian's source package)"
need cc "gcc libc6-dev"
need make make
need xz xz-utils
need /usr/include/event.h libevent-dev

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
# The machine's own mirror, with the suite that has this version.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | sort -u | grep '/debian/$' | head -n 1)
[ -n "$mirror" ] || { echo "apt has no Debian mirror" >&2; exit 1; }
key=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$key] $mirror trixie main" >sources.list
mkdir -p lists/partial cache/archives/partial
apt="apt-get -q -o Dir::Etc::SourceList=$work/sources.list -o Dir::Etc::SourceParts=/dev/null
    -o Dir::State::Lists=$work/lists -o Dir::Cache=$work/cache -o APT::Sandbox::User=$(id -un)"
# shellcheck disable=SC2086
$apt update >apt.log 2>&1 && $apt source --download-only --only-source "memcached=$version-1" >>apt.log 2>&1 ||
    { cat apt.log >&2; exit 1; }
archive=memcached_$version.orig.tar.xz
echo "$hash  $archive" | sha256sum -c - >/dev/null
tar -xJf "$archive"
cd "memcached-$version"
{ ./configure --enable-proxy && make -C vendor && make -j"$(nproc)" memcached; } >"$work/build.log" 2>&1 ||
    { tail -n 30 "$work/build.log" >&2; exit 1; }
cp memcached "$to/memcached-proxy"
mkdir -p "$to/routelib"
cp vendor/routelib/routelib.lua "$to/routelib/"
"$to/memcached-proxy" -V
