#!/usr/bin/python3
"""Sends a request to a container runtime of Kubernetes, as the kubelet would.

    cri.py METHOD [JSON]    calls a method of the RuntimeService; the request and the response are JSON
    cri.py exec ID WORD...  calls ExecSync; passes the command's output and exit code on
    cri.py apply POD LOGS   creates the pod and the containers of a manifest; prints their ids as JSON

CRI_DIRECTORY contains the output of protoc for cri.proto. CRI_SOCKET is the socket of the runtime. CRI_PARENT is the
parent cgroup of pods from a manifest.
"""

import json
import os
import sys

sys.path.insert(0, os.environ["CRI_DIRECTORY"])

import cri_pb2
import grpc
import yaml
from google.protobuf import json_format, message_factory

SERVICE = cri_pb2.DESCRIPTOR.services_by_name["RuntimeService"]


def call(name, request):
    method = SERVICE.methods_by_name[name]
    make = message_factory.MessageFactory().GetPrototype
    with grpc.insecure_channel("unix://" + os.environ["CRI_SOCKET"]) as channel:
        ask = channel.unary_unary(
            f"/runtime.v1.RuntimeService/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=make(method.output_type).FromString,
        )
        return ask(json_format.ParseDict(request, make(method.input_type)()), timeout=60)


def as_json(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True, including_default_value_fields=True)


QUANTITIES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def amount(text):
    return int(text[:-2]) * QUANTITIES[text[-2:]] if text[-2:] in QUANTITIES else int(text)


def processors(text):
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


def container(spec, volumes, resources):
    """Returns the CRI configuration of a container in a manifest."""
    security = spec.get("securityContext", {})
    limits = spec.get("resources", {}).get("limits", {})
    if "memory" in limits:
        resources["memory_limit_in_bytes"] = amount(limits["memory"])
    if "cpu" in limits:
        resources["cpu_period"] = 100000
        resources["cpu_quota"] = int(processors(limits["cpu"]) * 100000)
        resources["cpu_shares"] = int(processors(limits["cpu"]) * 1024)
    return {
        "metadata": {"name": spec["name"]},
        "image": {"image": spec["image"]},
        "command": spec.get("command", []),
        "args": spec.get("args", []),
        "envs": [{"key": each["name"], "value": each["value"]} for each in spec.get("env", [])],
        "mounts": [
            {"container_path": each["mountPath"], "host_path": volumes[each["name"]]}
            for each in spec.get("volumeMounts", [])
        ],
        "log_path": spec["name"] + ".log",
        "linux": {
            "resources": resources,
            "security_context": {
                "readonly_rootfs": security.get("readOnlyRootFilesystem", False),
                "capabilities": {
                    "add_capabilities": security.get("capabilities", {}).get("add", []),
                    "drop_capabilities": security.get("capabilities", {}).get("drop", []),
                },
                "namespace_options": {"pid": "CONTAINER"},
                "seccomp": {"profile_type": "RuntimeDefault"},
                "masked_paths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
                "readonly_paths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
            },
        },
    }


def apply(manifest, logs):
    with open(manifest, encoding="utf-8") as file:
        pod = yaml.safe_load(file)
    name, spec = pod["metadata"]["name"], pod["spec"]
    volumes = {}
    for volume in spec.get("volumes", []):
        volumes[volume["name"]] = os.path.join(logs, "volumes", volume["name"])
        os.makedirs(volumes[volume["name"]], exist_ok=True)
    config = {
        "metadata": {"name": name, "uid": name + "-1", "namespace": "default"},
        "hostname": name,
        "log_directory": logs,
        "linux": {"cgroup_parent": os.environ["CRI_PARENT"],
                  "security_context": {"namespace_options": {"pid": "CONTAINER"}}},
    }
    request = {"config": config, "runtime_handler": spec["runtimeClassName"]}
    ids = {"pod": call("RunPodSandbox", request).pod_sandbox_id}
    for each in spec["containers"]:
        request = {
            "pod_sandbox_id": ids["pod"],
            "config": container(each, volumes, {"oom_score_adj": 1000}),
            "sandbox_config": config,
        }
        ids[each["name"]] = call("CreateContainer", request).container_id
        call("StartContainer", {"container_id": ids[each["name"]]})
    print(json.dumps(ids))


def main(words):
    if words[0] == "apply":
        apply(*words[1:])
    elif words[0] == "exec":
        answer = call("ExecSync", {"container_id": words[1], "cmd": words[2:], "timeout": 20})
        sys.stdout.buffer.write(answer.stdout)
        sys.stderr.buffer.write(answer.stderr)
        return answer.exit_code
    else:
        print(json.dumps(as_json(call(words[0], json.loads(words[1] if len(words) > 1 else "{}")))))
    return 0


try:
    sys.exit(main(sys.argv[1:]))
except grpc.RpcError as error:
    # On one line.
    sys.exit(f"{error.code().name}: {' '.join(error.details().split())}")
