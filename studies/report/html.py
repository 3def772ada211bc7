"""The report as one self-contained HTML page: it needs no network and no other file."""

import math
import pathlib
import re
from typing import Any, Dict, Iterable, List, Mapping, Optional

import jinja2
import markupsafe
import plotly.offline

from console.html import finalized
from console.messages import printable
from studies.report import findings, statistics, tables
from studies.report.findings import CaseCurve, CaseFindings, Findings
from studies.report.palette import sign_of
from studies.report.runs import LOSS, METRICS, THROUGHPUT, Metric
from studies.report.statistics import Summary

_PAGE = pathlib.Path(__file__).parent / 'page'


def page(found: Findings) -> str:
    """The page, as HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(_PAGE)),
        autoescape=True,
        finalize=finalized,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters['breakable'] = _breakable
    return environment.get_template('report.html').render(
        comparison=found.comparison,
        cases=[{'index': index, 'sign': sign_of(index), 'found': each} for index, each in enumerate(found.cases)],
        metrics={name: METRICS[name] for name in found.comparison.report},
        status=tables.status(found.runs),
        state=findings.state,
        flags_of=tables.flags_of,
        by_epoch=findings.has_several_batch_sizes(found),
        written=tables.current_minute(),
        finals=tables.finals(found),
        differences=tables.differences(found),
        interquartile_means=tables.interquartile_means(found),
        improvements=tables.improvements(found),
        failed=tables.failed(found),
        unfinished=tables.unfinished(found),
        environment=tables.environment(found.runs),
        how_to_read=tables.how_to_read(found),
        numbers=_numbers(found),
        plotly=markupsafe.Markup(plotly.offline.get_plotlyjs()),
        style=markupsafe.Markup((_PAGE / 'report.css').read_text()),
        program=markupsafe.Markup((_PAGE / 'report.js').read_text()),
    )


def _breakable(text: str) -> markupsafe.Markup:
    """HTML that may be broken after the separators of names and settings."""
    return markupsafe.Markup(re.sub(r'([,_/=])(?!\d)', r'\1<wbr>', str(markupsafe.escape(printable(text)))))


def _numbers(found: Findings) -> Dict[str, Any]:
    """The data that the page's script draws, for JSON: displayed values, and None for values that are not finite."""
    metrics = {name: METRICS[name] for name in found.comparison.report}
    curves = {**metrics, 'loss': LOSS}
    index_of = {each.case.name: index for index, each in enumerate(found.cases)}
    return {
        'metrics': {
            name: {
                'label': metric.label,
                'unit': metric.unit,
                'differenceUnit': metric.difference_unit,
                'decimals': metric.decimals,
            }
            for name, metric in {**curves, 'throughput': THROUGHPUT}.items()
        },
        'cases': [_case(each, sign, curves) for each, sign in zip(found.cases, map(sign_of, range(len(found.cases))))],
        'pairs': [
            {
                'cases': [index_of[pair.later.name], index_of[pair.earlier.name]],
                'differences': {
                    name: difference
                    and {
                        'mean': _number(difference.mean, metrics[name]),
                        'low': _number(difference.low, metrics[name]),
                        'high': _number(difference.high, metrics[name]),
                    }
                    for name, difference in pair.differences.items()
                },
            }
            for pair in found.pairs
        ],
        'confidence': statistics.CONFIDENCE,
    }


def _case(each: CaseFindings, sign: Any, metrics: Mapping[str, Metric]) -> Dict[str, Any]:
    curves = {**each.evaluations, 'loss': each.loss}
    runs = dict(zip(each.keys, each.case.runs))
    return {
        'name': each.case.name,
        'text': f'{each.case.name} {tables.flags_of(each.case.settings)}'.lower(),
        'sign': {'light': sign.light, 'dark': sign.dark, 'dash': sign.dash, 'mark': sign.mark},
        'stepsPerEpoch': each.steps_per_epoch,
        'curves': {name: _curve(curves[name], metric) for name, metric in metrics.items()},
        'schedule': {
            'steps': [step for step, _ in each.schedule],
            'values': [rate for _, rate in each.schedule],
        },
        'ends': {
            **{
                name: _end(statistics.summarize([*values.values()]), values, runs, metrics[name])
                for name, values in each.finals.items()
            },
            'throughput': _end(statistics.summarize([*each.throughputs.values()]), each.throughputs, runs, THROUGHPUT),
        },
    }


def _curve(curve: CaseCurve, metric: Metric) -> Dict[str, Any]:
    return {
        'mean': {
            'steps': curve.steps,
            'values': _column((summary.mean for summary in curve.summaries), metric),
            'deviations': _column((summary.deviation for summary in curve.summaries), metric),
            'runs': [summary.n for summary in curve.summaries],
        },
        'runs': [
            {'name': one.run.name, 'steps': one.steps, 'values': _column(one.values, metric)}
            for one in curve.curves
            if one.steps
        ],
    }


def _end(
    summary: Summary, values: Mapping[object, float], runs: Mapping[object, Any], metric: Metric
) -> Dict[str, Any]:
    return {
        'mean': _number(summary.mean, metric),
        'deviation': _number(summary.deviation, metric),
        'runs': [{'name': runs[key].name, 'value': _number(value, metric)} for key, value in values.items()],
    }


def _column(values: Iterable[Optional[float]], metric: Metric) -> List[Optional[float]]:
    return [_number(value, metric) for value in values]


def _number(value: Optional[float], metric: Metric) -> Optional[float]:
    """The displayed value with six more decimals; None if it is not finite, which JSON cannot represent."""
    if value is None or not math.isfinite(value):
        return None
    return round(metric.scale * value, metric.decimals + 6)
