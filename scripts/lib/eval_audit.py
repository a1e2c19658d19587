"""Runs the audit of tool texts on each corpus, and prints recall on attacks and alarms on honest texts, for one half or both."""

import argparse
import collections
import json
import subprocess
import sys

from eval_corpora import FOLDER, ROOT, cases

ALARMS = ("medium", "high")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, prog="scripts/eval-audit")
    parser.add_argument("--half", choices=("development", "unseen", "both"), default="development")
    parser.add_argument("--missed", action="store_true", help="list what was judged wrongly; only for the development half")
    parser.add_argument("--command", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.missed and given.half != "development":
        parser.error("--missed would show the unseen half; leave out --half")
    return given


def audit(all_cases, command):
    """Returns the findings of each case. The program reads a case a line, and writes its findings a line."""
    command = command.split() if command else ["cargo", "run", "--quiet", "--example", "audit_cases"]
    lines = "".join(json.dumps({key: one[key] for key in ("manifest", "others")}) + "\n" for one in all_cases)
    answer = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=ROOT)
    if answer.returncode != 0:
        sys.exit(f"the audit failed: {answer.stderr.strip()}")
    return [json.loads(line) for line in answer.stdout.splitlines()]


def table(half, judged):
    print(f"\n{half} half")
    print(f"| {'corpus':<40} | {'kind':<6} | {'alarms':>6} | {'of':>5} | {'rate':>6} |")
    print(f"| {'-' * 40} | {'-' * 6} | {'-' * 5}: | {'-' * 4}: | {'-' * 5}: |")
    totals = collections.defaultdict(lambda: [0, 0])
    for (kind, corpus), (alarms, count) in sorted(judged.items()):
        print(f"| {corpus:<40} | {kind:<6} | {alarms:>6} | {count:>5} | {alarms / count:>6.3f} |")
        totals[kind][0] += alarms
        totals[kind][1] += count
    for kind, (alarms, count) in sorted(totals.items()):
        print(f"| {'all ' + kind:<40} | {kind:<6} | {alarms:>6} | {count:>5} | {alarms / count:>6.3f} |")
    goals(judged, totals)


def goals(judged, totals):
    """Prints whether the goals are met. A goal that is missed is no failure."""
    print()
    for name, (alarms, count), limit, is_least in (
        ("recall on attacks", totals["attack"], 0.85, True),
        ("recall on AgentDojo's templates", judged["attack", "AgentDojo templates"], 0.90, True),
        ("alarms on hard negatives", totals["hard"], 0.125, False),
        ("alarms on honest tools", totals["honest"], 0.003, False),
    ):
        if count:
            rate = alarms / count
            met = rate >= limit if is_least else rate <= limit
            print(f"goal: {name} at {'least' if is_least else 'most'} {limit}: {rate:.3f}, {'met' if met else 'MISSED'}")


def main():
    given = arguments()
    halves = ("development", "unseen") if given.half == "both" else (given.half,)
    chosen = [one for one in cases() if one["half"] in halves]
    FOLDER.mkdir(parents=True, exist_ok=True)
    for half in halves:
        judged = collections.defaultdict(lambda: [0, 0])
        part = [one for one in chosen if one["half"] == half]
        for one, findings in zip(part, audit(part, given.command), strict=True):
            alarms = [finding for finding in findings if finding["severity"] in ALARMS]
            row = judged[one["kind"], one["corpus"]]
            row[0] += bool(alarms)
            row[1] += 1
            if given.missed and bool(alarms) != (one["kind"] == "attack"):
                told = "; ".join(f"{finding['rule']}: {finding['excerpt']}" for finding in alarms)
                text = " ".join(one["manifest"]["tools"][0]["description"].split())
                print(f"{one['kind']} {one['corpus']} {one['id']} {one['manifest']['tools'][0]['name']}: {text[:220]} [{told[:300]}]")
        table(half, judged)


main()
