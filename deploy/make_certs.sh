#!/usr/bin/env bash
# The certificates of one deployment, by openssl alone: make_certs.sh FOLDER [DAYS]
#
# A CA of its own, one certificate for each role, and the file `env` with what Dask reads. Dask asks whether a
# certificate was signed by this CA, and nothing else: not for the name of the host, not for the role. Whoever has one
# of these keys is inside. So the CA signs for this deployment only, and its key is removed at the end: who needs
# other certificates makes all of them anew.
set -euo pipefail
[ $# -ge 1 ] || { echo "usage: make_certs.sh FOLDER [DAYS]" >&2; exit 2; }
folder=$1 days=${2:-30}
umask 077
mkdir -p "$folder" && cd "$folder"
# `env` is read by shells, systemd and containers, which quote in different ways.
[[ $PWD != *[[:space:]\'\"\$\\]* ]] || { echo "$PWD has a space or quote, which env cannot hold; name another folder" >&2; exit 3; }
[ ! -e ca.pem ] || { echo "$PWD holds certificates already; name an empty folder, or remove them" >&2; exit 3; }
trap 'rm -f ca.key ca.srl ./*.csr extensions' EXIT
quiet() { local said; said=$(openssl "$@" 2>&1) || { echo "$said" >&2; exit 1; }; }
key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)

quiet req -x509 "${key[@]}" -days "$days" -keyout ca.key -out ca.pem -subj "/CN=dcpred CA" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign"
printf 'basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n' > extensions
for role in scheduler worker client; do
    quiet req -new "${key[@]}" -keyout $role.key -out $role.csr -subj "/CN=dcpred $role"
    quiet x509 -req -in $role.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days "$days" -out $role.pem -extfile extensions
done

{
    echo "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=true"
    echo "DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$PWD/ca.pem"
    for role in scheduler worker client; do
        echo "DASK_DISTRIBUTED__COMM__TLS__${role^^}__CERT=$PWD/$role.pem"
        echo "DASK_DISTRIBUTED__COMM__TLS__${role^^}__KEY=$PWD/$role.key"
    done
} > env
