"""The files that no program here can run: Kubernetes, systemd, Docker. They are checked as far as they can be."""
import os
import re
import shutil
import signal
import subprocess

import pytest
import requests
import yaml

from conftest import SERVE, free_ports, want

KUBERNETES = "deploy/kubernetes"


def documents(path):
    with open(os.path.join(KUBERNETES, path)) as file:
        return [d for d in yaml.safe_load_all(file) if d]


def deployment():
    return next(d for d in documents("duet.yaml") if d["kind"] == "Deployment")


def pod():
    return deployment()["spec"]["template"]["spec"]


@pytest.mark.parametrize("path", ["duet.yaml", "autoscale.yaml"])
def test_kubernetes_schemas(path):
    validate = pytest.importorskip("kubernetes_validate", reason="not run: no kubernetes-validate")
    for document in documents(path):
        validate.validate(document, "1.31", strict=True)


def test_the_schema_check_can_fail():
    validate = pytest.importorskip("kubernetes_validate", reason="not run: no kubernetes-validate")
    wrong = deployment()
    wrong["spec"]["template"]["spec"]["containers"][0]["readonlyRootFilesystem"] = True
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, "1.31", strict=True)


def test_the_pod_is_confined_and_has_time_to_end():
    container = pod()["containers"][0]
    assert pod()["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert all(mount["readOnly"] for mount in container["volumeMounts"])
    drain = next(int(a.split("=")[1]) for a in container["args"] if a.startswith("--drain="))
    sleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod()["terminationGracePeriodSeconds"] > drain + sleep
    metric = documents("autoscale.yaml")[0]["spec"]["metrics"][0]["pods"]["metric"]["name"]
    assert metric == "duet_requests_waiting"


@pytest.mark.parametrize("has_key", [True, False])
def test_the_server_takes_the_arguments_and_answers_the_probes(known_file, tmp_path, has_key):
    (tmp_path / "keys").write_text("a-key\n")
    args = list(pod()["containers"][0]["args"])
    if not has_key:  # as the patch for an inference gateway has it
        (patch,) = yaml.safe_load(open(os.path.join(KUBERNETES, "llm-d/kustomization.yaml")))["patches"]
        for step in yaml.safe_load(patch["patch"]):
            parts = step["path"].rsplit("/", 2)[1:]
            if step["op"] == "remove":
                assert pod()["volumes"][int(parts[1])]["name"] == "keys"
                assert pod()["containers"][0]["volumeMounts"][int(parts[1])]["name"] == "keys"
            if parts[0] == "args":
                if step["op"] == "test":
                    assert args[int(parts[1])] == step["value"]
                elif step["op"] == "replace":
                    args[int(parts[1])] = step["value"]
                else:
                    args.append(step["value"])
    port = free_ports(1)
    changes = {"--model": known_file, "--port": port, "--api-key-file": tmp_path / "keys", "--threads": 1}
    args = [f"{a.split('=')[0]}={changes[a.split('=')[0]]}" if a.split("=")[0] in changes else a for a in args]
    process = subprocess.Popen([SERVE, *args], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert "serves duet" in process.stdout.readline()
        url = f"http://127.0.0.1:{port}"
        pods_name = {"Host": f"10.1.2.3:{port}"}
        container = pod()["containers"][0]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = container[probe]["httpGet"]["path"]
            assert requests.get(url + path, headers=pods_name, timeout=10).status_code == 200
        scraped = requests.get(url + "/metrics", headers=pods_name, timeout=10)
        assert scraped.status_code == (401 if has_key else 200)
        if not has_key:  # what endpoint pickers read (docs/scale_out.md)
            for name in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc", "cache_config_info"):
                assert f"# TYPE vllm:{name} gauge\n" in scraped.text
            assert re.search(r'^vllm:cache_config_info\{block_size="\d+",num_gpu_blocks="\d+"\} 1$', scraped.text, re.M)
        hosts = {"Host": "duet"} if not has_key else {"Host": "duet.default.svc", "Authorization": "Bearer a-key"}
        assert requests.get(url + "/v1/models", headers=hosts, timeout=10).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_pool_of_an_inference_gateway():
    pool, route = documents("llm-d/inferencepool.yaml")
    assert pool["apiVersion"] == "inference.networking.k8s.io/v1" and pool["kind"] == "InferencePool"
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    assert pool["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert pool["spec"]["targetPorts"] == [{"number": pod()["containers"][0]["ports"][0]["containerPort"]}]
    assert route["spec"]["rules"][0]["backendRefs"][0]["name"] == pool["metadata"]["name"]


def test_the_unit(tmp_path):
    want("systemd-analyze")
    with open("deploy/systemd/duet.service") as file:
        text = file.read()
    unit = tmp_path / "duet.service"
    unit.write_text(text.replace("/usr/bin/duet-serve", SERVE))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(unit)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-300:]  # 20: an exposure of 2.0 of 10 at most


def test_the_image(tmp_path, known_file):
    """The script that fills the image runs here; the image is entered, if we may."""
    for program in ("ldd", "strip"):
        want(program)
    root = tmp_path / "root"
    subprocess.run(["deploy/docker/root.sh", SERVE, str(root)], check=True)
    n_bytes = sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(root) for name in names)
    assert n_bytes < 80e6
    print(f"the image has {n_bytes / 1e6:.1f} MB")
    if os.getuid() != 0 or not shutil.which("chroot"):
        pytest.skip("not run: the image was not entered, that wants root")
    shutil.copy(known_file, root / "models/known.gguf")
    for path in (tmp_path, *tmp_path.parents, root / "models"):  # the user that is not root has to get there
        if path.stat().st_uid == os.getuid() and path.is_relative_to(tmp_path.parents[1]):
            path.chmod(0o755)
    enter = ["chroot", "--userspec=65532:65532", str(root)]
    process = subprocess.Popen([*enter, "/usr/bin/serve", "-m", "/models/known.gguf", "--port", "0", "-t", "1"],
                               stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert "serves known" in line
    assert requests.get(re.search(r"http://\S+", line)[0] + "/readyz", timeout=10).status_code == 200
    process.terminate()
    assert process.wait(20) == 0
    process.stdout.close()
    assert subprocess.run(["chroot", str(root), "/usr/bin/sleep", "0"]).returncode == 0
