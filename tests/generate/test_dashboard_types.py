"""The dashboards against the types that Grafana itself publishes, where they are at hand.

Nothing is installed by a test.  To run it, once for each version of Grafana:

    npm install --ignore-scripts --legacy-peer-deps --prefix DIR @grafana/schema@13.2.3 typescript@5
    TRAINVITALS_GRAFANA_TYPES=DIR pytest tests/generate/test_dashboard_types.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = Path(os.environ.get("TRAINVITALS_GRAFANA_TYPES", "/nowhere")) / "node_modules"

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (MODULES / "typescript").exists(),
    reason="TRAINVITALS_GRAFANA_TYPES names no folder with @grafana/schema and typescript",
)

#: A JSON text has words where the types have enumerations.
PLAIN = (
    "type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]"
    " : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;"
)
#: What the plugin of Prometheus adds to variables and annotations, which the types do not know.
OF_THE_PLUGIN = ("definition", "expr", "titleFormat", "textFormat", "useValueForTime")


def declarations(kind):
    """Return the file with the types of a panel; its place and name differ between versions."""
    name = kind.replace("-", "")
    found = sorted((MODULES / "@grafana/schema/dist").glob(f"**/composable/{name}/**/*types.gen.d.ts"))
    assert found, name
    return str(found[0]).removesuffix(".d.ts")


def checked(document, number):
    """Return TypeScript that gives a dashboard, and the options and fields of its panels, their types."""
    for entry in (*document["templating"]["list"], *document["annotations"]["list"]):
        for key in OF_THE_PLUGIN:
            entry.pop(key, None)
    made = [f"export const d{number}: Plain<Dashboard> = {json.dumps(document)};"]
    panels = [inner for panel in document["panels"] for inner in (panel, *panel.get("panels", ()))]
    for panel in panels:
        if panel["type"] == "row":
            continue
        name, place = panel["type"].replace("-", ""), f"{number}_{panel['id']}"
        made.append(f"export const o{place}: Partial<Plain<{name}.Options>> = {json.dumps(panel['options'])};")
        custom = panel["fieldConfig"]["defaults"].get("custom")
        if custom is not None:
            made.append(f"export const f{place}: Partial<Plain<{name}.FieldConfig>> = {json.dumps(custom)};")
    return made


def complaints(documents, folder):
    """Return what the compiler says of some dashboards."""
    kinds = {"gauge", "stat", "timeseries", "state-timeline", "heatmap", "table", "xychart"}
    lines = ["import type { Dashboard } from '@grafana/schema';", PLAIN]
    lines += [
        f"import type * as {kind.replace('-', '')} from {json.dumps(declarations(kind))};" for kind in sorted(kinds)
    ]
    for number, document in enumerate(documents):
        lines += checked(document, number)
    (folder / "check.ts").write_text("\n".join(lines))
    (folder / "node_modules").symlink_to(MODULES)
    flags = ["--noEmit", "--strict", "--skipLibCheck", "--moduleResolution", "node", "--target", "es2022"]
    command = ["node", str(MODULES / "typescript/bin/tsc"), *flags, "check.ts"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def committed():
    """Return the dashboards of the repository."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted((ROOT / "dashboards").glob("*/*.json"))]


def test_dashboards_have_the_types_of_grafana(tmp_path):
    """Each field of each dashboard, its panels' options included, is one that Grafana knows, and of its type."""
    documents = committed()

    assert len(documents) == 12
    assert not complaints(documents, tmp_path)


def test_a_field_that_grafana_does_not_know_is_found(tmp_path):
    """The check above does find something."""
    document = committed()[0]
    document["panels"][0]["options"]["odd"] = 1

    assert "'\"odd\"' does not exist" in complaints([document], tmp_path)
