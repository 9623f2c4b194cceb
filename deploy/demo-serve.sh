#!/bin/sh
# Types docs/serve.md into a folder: a model's file, its profile, a service, a burst, a tenant that comes and learns what
# has drifted, a stop, a second start. Called as demo-serve.sh DOCS FOLDER BIN [OPTIONS of serve], where BIN has migrator and python.
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
"$bin/migrator" profile digits:Digits mlp:digits-rotated --sample sample.bin --gpu cpu-1.6-in-7 --coarse --out profiles.csv

# A network that knows upright digits, and digits that have turned by 60 degrees: some to learn from, some to ask.
"$bin/python" - <<'END'
from pathlib import Path

import numpy as np
from workloads.learning.course import Option
from workloads.learning.datasets import benchmark
from workloads.learning.models import classifier
from workloads.learning.training import fit

class Unwatched:
    def step(self, loss, n_steps):
        pass

digits = benchmark("digits-rotated")
upright, turned = digits.experiences[0].train, digits.experiences[2]
model = classifier("mlp", seed=1, **digits.model_options)
fit(model, upright, upright.take(np.arange(0)), Option("full", n_epochs=12), seed=1, steps=Unwatched())
model.save(Path("upright.safetensors"), {})
np.savez("turned.npz", x=turned.train.inputs, y=turned.train.labels)
np.savez("asked.npz", x=turned.test.inputs[:200], y=turned.test.labels[:200])
END
cat > ask-turned.py <<'END'
"""Asks the network what it is shown, says which label was right, and tells the share."""
import json
from http.client import HTTPConnection

import numpy as np

asked, door, n_right, n_told = np.load("asked.npz"), HTTPConnection("localhost", 8000, timeout=10), 0, 0
for number, (pixels, label) in enumerate(zip(asked["x"], asked["y"])):
    tensor = {"name": "input", "datatype": "UINT8", "shape": [1, 1, 8, 8], "data": pixels.ravel().tolist()}
    door.request("POST", "/v2/models/turned/infer", json.dumps({"id": f"{number}", "inputs": [tensor]}))
    answer = door.getresponse()
    answer.read()
    if answer.status == 200:
        door.request("POST", "/v2/models/turned/feedback", json.dumps({"id": f"{number}", "label": int(label)}))
        n_told += 1
        n_right += json.loads(door.getresponse().read())["right"]
print(f"turned: {n_right} of {n_told} answers right")
END

serve() {
    "$bin/migrator" serve own.yaml --set window_s=20 --set estimates.delay_s=3 --out service "$@" &
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
echo; echo "another tenant comes, whose digits have turned"
mkdir -m 755 theirs
cat >> own.yaml <<'END'
  - name: turned
    model: mlp
    weights: upright.safetensors
    input: {dtype: uint8, shape: [1, 8, 8]}
    classes: 10
    accuracy: {before: 0.4, after: 0.9}
    slo_ms: 250
    arrivals: {live: true, expect_rps: 10}
    learning: {benchmark: folder, folder: theirs, batch: 16, learning_rate: 0.05}
    retraining: {samples: 400, epochs: 12, required: true}
END
"$bin/migrator" reload service --check
"$bin/migrator" reload service
"$bin/python" clients.py 45 digits=10 forms=10 &
clients=$!
until "$bin/python" ask-turned.py; do sleep 1; done
echo "what was labelled is there to be learned"
cp turned.npz theirs/.turned.npz
mv theirs/.turned.npz theirs/turned.npz
until "$bin/python" - <<'END'
import json, sys
told = [json.loads(line) for line in open("service/events.jsonl") if '"finished"' in line]
ended = [one for one in told if one.get("kind") == "finished"]
sys.exit(not ended)
END
do
    kill -0 $service
    sleep 1
done
"$bin/python" ask-turned.py
wait $clients
stop
echo; echo "started again, with the layout of before"
serve "$@"
"$bin/python" clients.py 30 digits=10 forms=10
stop
echo
"$bin/migrator" report service
