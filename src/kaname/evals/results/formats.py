"""A report as JUnit XML for continuous integration, and as an HTML page."""

from __future__ import annotations

from html import escape
from xml.sax.saxutils import quoteattr

from .report import CaseAttempt, CaseReport, EvalReport

_STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #ccc;
vertical-align:top}.no{color:#a00}.yes{color:#060}pre{white-space:pre-wrap;margin:0}code{font-size:.85em}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}.no{color:#f88}.yes{color:#8d8}}"""


def as_junit(report: EvalReport) -> str:
    """Return the report as JUnit XML: a test for each case."""
    failures = sum([not case.passed for case in report.cases])
    seconds = sum([one.seconds for one in report.attempts])
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<testsuite name={_attribute(report.name)} tests="{len(report.cases)}" failures="{failures}" '
        f'errors="0" time="{seconds:.3f}">',
    ]
    for case in report.cases:
        time = sum([one.seconds for one in case.attempts])
        head = f'  <testcase classname={_attribute(report.name)} name={_attribute(case.name)} time="{time:.3f}"'
        if case.passed:
            lines.append(f"{head}/>")
            continue
        message = _attribute(f"{case.passes} of {case.planned} attempts passed")
        why = "\n".join([_line(one) for one in case.attempts if not one.passed])
        lines += [f"{head}>", f"    <failure message={message}>{_text(why)}</failure>", "  </testcase>"]
    return "\n".join([*lines, "</testsuite>", ""])


def as_html(report: EvalReport) -> str:
    """Return the report as a page that needs nothing else."""
    low, high = report.interval
    head = f"{report.rate:.0%} of the attempts passed (95 % interval {low:.0%} to {high:.0%}), {len(report.cases)} cases"
    more = [
        f"agent {report.about.get('agent', '')}",
        f"model {report.about.get('model', '')}",
        f"attempts per case {report.repeat}",
    ]
    more += [] if report.cost is None else [f"cost ${report.cost:.4f}"]
    more += (
        [] if report.reliability is None or report.repeat == 1 else [f"all attempts pass in {report.reliability:.0%} of cases"]
    )
    rows = "\n".join([_row(case) for case in report.cases])
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(report.name)}</title><style>{_STYLE}</style></head>
<body><h1>{escape(report.name)} {escape(report.label)}</h1><p><b>{escape(head)}</b><br>{escape(" · ".join(more))}</p>
<table><thead><tr><th>Case</th><th>Passed</th><th>Answer, and what is wrong</th><th>Run</th></tr></thead>
<tbody>
{rows}
</tbody></table></body></html>
"""


def _row(case: CaseReport) -> str:
    shown = next((one for one in case.attempts if not one.passed), case.attempts[0] if case.attempts else None)
    mark = "yes" if case.passed else "no"
    answer = escape(shown.output[:500]) if shown else ""
    why = f'<br><span class="no">{escape(_clean(shown.why))}</span>' if shown and shown.why else ""
    runs = "<br>".join([f"<code>{escape(one)}</code>" for one in (shown.run_ids if shown else ())])
    return (
        f"<tr><td><b>{escape(case.name)}</b><br>{escape(case.title)}</td>"
        f'<td class="{mark}">{case.passes}/{case.planned}</td><td><pre>{answer}</pre>{why}</td><td>{runs}</td></tr>'
    )


def _line(attempt: CaseAttempt) -> str:
    return f"attempt {attempt.number + 1}, run {', '.join(attempt.run_ids) or '-'}: {attempt.why}"


def _clean(text: str) -> str:
    """Return the text without characters that XML does not allow."""
    return "".join([char for char in text if char in "\t\n\r" or (ord(char) >= 32 and not 0xD800 <= ord(char) <= 0xDFFF)])


def _attribute(text: str) -> str:
    return quoteattr(_clean(text))


def _text(text: str) -> str:
    return escape(_clean(text), quote=False)
