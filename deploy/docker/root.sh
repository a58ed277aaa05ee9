#!/bin/sh
# root.sh SERVE DIR: puts into DIR all that the server needs to run: itself stripped, the libraries it is linked to, a
# user that is not root, and sleep, which preStop of Kubernetes calls.
set -eu
serve=$1 root=$2
mkdir -p "$root/usr/bin" "$root/etc" "$root/tmp" "$root/models"
chmod 1777 "$root/tmp"
cp "$serve" "$root/usr/bin/serve"
strip "$root/usr/bin/serve"
cp /bin/sleep "$root/usr/bin/sleep"
# where they are looked for, by links if the system has merged /usr
for dir in bin lib lib64; do
    if [ -L "/$dir" ]; then mkdir -p "$root/usr/$dir"; ln -s "usr/$dir" "$root/$dir"; else mkdir -p "$root/$dir"; fi
done
for lib in $(ldd "$serve" /bin/sleep | sed -n 's/^[^/]*\(\/[^ ]*\) (0x.*/\1/p' | sort -u); do
    mkdir -p "$root$(dirname "$lib")"
    cp -L "$lib" "$root$lib"
done
echo 'duet:x:65532:65532:duet:/tmp:/usr/sbin/nologin' >"$root/etc/passwd"
echo 'duet:x:65532:' >"$root/etc/group"
