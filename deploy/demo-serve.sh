#!/bin/sh
# Types docs/serve.md into a folder: a model's file, its profile, a service, a burst, a tenant that comes, a stop, a second
# start. Called as demo-serve.sh DOCS FOLDER BIN [OPTIONS of serve], where BIN has migrator and python.
set -eu
docs=$1 folder=$2 bin=$3
shift 3
mkdir -p "$folder"
"$bin/python" - "$docs" "$folder" <<'END'
import re, sys
from pathlib import Path

text, folder = Path(sys.argv[1]).read_text("utf-8"), Path(sys.argv[2])
blocks = re.findall(r"^```(?:python|yaml)\n(.*?)^```", text, re.M | re.S)
for name, block in zip(("digits.py", "weights.py", "own.yaml", "clients.py"), blocks, strict=True):
    (folder / name).write_text(block, "utf-8")
END
cd "$folder"
export PYTHONPATH="$PWD"
"$bin/python" weights.py
head -c 256 /dev/zero > sample.bin
"$bin/migrator" profile digits:Digits --sample sample.bin --gpu cpu-1.6-in-7 --coarse --out profiles.csv

serve() {
    "$bin/migrator" serve own.yaml --set window_s=20 --out service "$@" &
    service=$!
    trap 'kill $service' EXIT
    until "$bin/python" -c "from urllib.request import urlopen as ask; ask('http://localhost:8000/v2/health/ready')" 2> /dev/null; do
        kill -0 $service
        sleep 1
    done
}
stop() {
    kill -TERM $service
    wait $service
    trap - EXIT
}

serve "$@"
"$bin/python" clients.py 30 digits=10 forms=10
echo; echo "a burst: digits is asked four times as much"
"$bin/python" clients.py 30 digits=40 forms=10
echo; echo "another tenant comes"
echo "  - {<<: *digits, name: letters}" >> own.yaml
"$bin/migrator" reload service
"$bin/python" clients.py 30 digits=10 forms=10 letters=10
stop
echo; echo "started again, with the layout of before"
serve "$@"
"$bin/python" clients.py 30 digits=10 forms=10
stop
echo
"$bin/migrator" report service
