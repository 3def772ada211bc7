'use strict';
// Draws the figures of the page for the selected cases.
(() => {
  const numbers = JSON.parse(document.getElementById('numbers').textContent);
  const root = document.documentElement;
  const one = (id) => document.getElementById(id);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const dashes = (dash, width) => (dash.length ? dash.map((length) => `${length * width}px`).join(',') : 'solid');
  const escaped = (text) => text.replace(/[&<>]/g, (sign) => ({'&': '&amp;', '<': '&lt;', '>': '&gt;'})[sign]);
  const minus = '−';

  // Numbers in the format of the tables.
  const plain = (value, decimals) => value.toLocaleString(
    'en-GB', {minimumFractionDigits: decimals, maximumFractionDigits: decimals}).replace('-', minus);
  const amount = (value, metric) => `${plain(value, metric.decimals)}${metric.unit && ` ${metric.unit}`}`;
  const signed = (value, metric) => `${value < 0 ? '' : '+'}${plain(value, metric.decimals)}`;
  const whole = (value) => Math.round(value).toLocaleString('en-GB');
  const spread = (deviation, metric) => (deviation === null ? '' : ` ± ${plain(deviation, metric.decimals)}`);

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const ofCase = (each) => each.sign[root.dataset.theme];
  const faded = (hex, opacity) =>
    `rgba(${[1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)).join(',')},${opacity})`;

  const chosen = () => new Set(all('input[name=case]').filter((box) => box.checked && !box.parentElement.hidden)
    .map((box) => Number(box.value)));
  const byEpoch = () => document.querySelector('input[name=axis]:checked').value === 'epochs';

  const config = {
    displaylogo: false, responsive: true, modeBarButtons: [['toImage', 'zoom2d', 'pan2d', 'resetScale2d']],
  };

  function axis(changes) {
    return {
      gridcolor: colour('grid'), linecolor: colour('rule'), zeroline: false, automargin: true, tickcolor: colour('rule'),
      ticks: 'outside', ticklen: 4, showline: true, ...changes,
    };
  }

  function draw(id, traces, layout) {
    one(id).hidden = !traces.length;
    one(`${id}-empty`).hidden = traces.length > 0;
    if (!traces.length) return;
    Plotly.react(one(id), traces, {
      height: 320, margin: {l: 52, r: 14, t: 30, b: 46}, showlegend: false, hovermode: 'closest', dragmode: 'zoom',
      paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)',
      font: {family: getComputedStyle(document.body).fontFamily, size: 12, color: colour('text')},
      hoverlabel: {
        bgcolor: colour('raised'), bordercolor: colour('rule'), font: {color: colour('text')}, align: 'left', namelength: -1,
      },
      modebar: {bgcolor: 'rgba(0,0,0,0)'},
      ...layout,
    }, config);
  }

  // Positions of steps on the horizontal axis.
  const along = (each, steps) => (byEpoch() ? steps.map((step) => step / each.stepsPerEpoch) : steps);
  const at = (each, step) => `step ${whole(step)}, epoch ${(step / each.stepsPerEpoch).toPrecision(3)}`;
  const stepAxis = () => axis({title: {text: byEpoch() ? 'epoch' : 'step', standoff: 6}, rangemode: 'tozero'});

  function curves(name, cases) {
    const metric = numbers.metrics[name];
    const below = [];
    const between = [];
    const above = [];
    const marked = name !== 'loss';
    for (const each of cases) {
      const {mean, runs} = each.curves[name];
      if (!mean.steps.length) continue;
      const tint = ofCase(each);
      const spreads = mean.steps.map((_, index) => index)
        .filter((index) => mean.deviations[index] !== null && mean.values[index] !== null);
      const edge = (index, side) => mean.values[index] + side * mean.deviations[index];
      if (spreads.length > 1) {
        const back = [...spreads].reverse();
        below.push({
          x: along(each, [...spreads, ...back].map((index) => mean.steps[index])),
          y: [...spreads.map((index) => edge(index, 1)), ...back.map((index) => edge(index, -1))],
          mode: 'lines', line: {width: 0}, fill: 'toself', fillcolor: faded(tint, 0.16), hoverinfo: 'skip',
        });
      }
      if (one('single').checked && runs.length > 1) {
        for (const run of runs) {
          between.push({
            x: along(each, run.steps), y: run.values, mode: 'lines', line: {width: 1, color: faded(tint, 0.5)},
            text: run.steps.map((step, index) => run.values[index] === null ? '' :
              `<b>${escaped(run.name)}</b><br>${at(each, step)}<br>${metric.label} ${amount(run.values[index], metric)}`),
            hovertemplate: '%{text}<extra></extra>',
          });
        }
      }
      above.push({
        x: along(each, mean.steps), y: mean.values, name: each.name, mode: 'lines+markers',
        line: {width: 2.5, color: tint, dash: dashes(each.sign.dash, 2)},
        marker: {symbol: each.sign.mark, size: 8, color: tint, maxdisplayed: marked ? 0 : 10},
        text: mean.steps.map((step, index) => mean.values[index] === null ? '' :
          `<b>${escaped(each.name)}</b><br>${at(each, step)}<br>${metric.label} ${plain(mean.values[index], metric.decimals)}`
          + `${spread(mean.deviations[index], metric)}${metric.unit && ` ${metric.unit}`}`
          + `<br>${mean.runs[index] === 1 ? '1 run' : `mean of ${mean.runs[index]} runs`}`),
        hovertemplate: '%{text}<extra></extra>',
      });
    }
    draw(`curve-${name}`, [...below, ...between, ...above], {
      xaxis: stepAxis(), yaxis: axis({ticksuffix: metric.unit === '%' ? ' %' : ''}),
    });
  }

  function schedule(cases) {
    const same = (one, other) => JSON.stringify(one.schedule) === JSON.stringify(other.schedule);
    const traces = cases.filter((each) => each.schedule.steps.length).map((each, index, drawn) => ({
      x: along(each, each.schedule.steps), y: each.schedule.values, name: each.name, mode: 'lines',
      // Wider than equal schedules drawn over it, so that all are visible.
      line: {
        shape: 'hv', color: ofCase(each),
        width: Math.min(2.5 + 3 * drawn.slice(index + 1).filter((later) => same(later, each)).length, 14),
        dash: dashes(each.sign.dash, 2),
      },
      text: each.schedule.steps.map((step, point) =>
        `<b>${escaped(each.name)}</b><br>from ${at(each, step)}<br>learning rate ${each.schedule.values[point].toPrecision(4)}`),
      hovertemplate: '%{text}<extra></extra>',
    }));
    draw('schedule', traces, {xaxis: stepAxis(), yaxis: axis({rangemode: 'tozero'})});
  }

  // Breaks text into lines after the separators of names and settings.
  function broken(text, most) {
    const lines = [''];
    for (const part of text.split(/(?<=[,_/= ])/)) {
      if (lines[lines.length - 1].length + part.length > most) lines.push('');
      lines[lines.length - 1] += part;
    }
    return lines.filter(Boolean);
  }

  // Draws one row per label, with the label above its marks: names are long and screens may be narrow.
  function rows(id, labels, traces, xaxis, shapes) {
    const most = Math.max(20, Math.floor((one(id).parentElement.clientWidth - 40) / 6.6));
    const lines = labels.map((label) => broken(label, most));
    const tallest = Math.max(1, ...lines.map((parts) => parts.length));
    const height = 28 + 16 * tallest;
    draw(id, traces, {
      height: 60 + height * labels.length, margin: {l: 8, r: 14, t: 12, b: 46}, xaxis,
      yaxis: {
        range: [labels.length - 0.5 + 14 / height, -0.5 - 6 / height], showticklabels: false, showgrid: false, zeroline: false,
        fixedrange: true,
      },
      shapes: [
        ...(shapes || []),
        ...labels.map((_, index) => ({
          type: 'line', xref: 'paper', x0: 0, x1: 1, y0: index + 0.25, y1: index + 0.25, layer: 'below',
          line: {color: colour('grid'), width: 1},
        })),
      ],
      annotations: lines.map((parts, index) => ({
        text: parts.map(escaped).join('<br>'), xref: 'paper', x: 0, xanchor: 'left', y: index + 0.25, yanchor: 'bottom',
        yshift: 7, showarrow: false, align: 'left', font: {color: colour('faint'), size: 11.5},
      })),
    });
  }

  function ends(id, name, cases, fromZero) {
    const metric = numbers.metrics[name];
    const shown = cases.filter((each) => each.ends[name].runs.length);
    const traces = shown.flatMap((each, row) => {
      const end = each.ends[name];
      const tint = ofCase(each);
      const known = end.runs.filter((run) => run.value !== null);
      const singles = {
        x: known.map((run) => run.value), y: known.map(() => row + 0.25), mode: 'markers',
        marker: {symbol: `${each.sign.mark}-open`, size: 8, color: tint, opacity: 0.8},
        text: known.map((run) => `<b>${escaped(run.name)}</b><br>${metric.label} ${amount(run.value, metric)}`),
        hovertemplate: '%{text}<extra></extra>',
      };
      const mean = {
        x: end.mean === null ? [] : [end.mean], y: [row + 0.25], name: each.name, mode: 'markers',
        error_x: {type: 'data', array: [end.deviation || 0], color: tint, thickness: 2, width: end.deviation ? 6 : 0},
        marker: {symbol: each.sign.mark, size: 12, color: tint, line: {width: 1.5, color: colour('ground')}},
        text: end.mean === null ? [] : [`<b>${escaped(each.name)}</b><br>${metric.label} ${plain(end.mean, metric.decimals)}`
          + `${spread(end.deviation, metric)}${metric.unit && ` ${metric.unit}`}`
          + `<br>${end.runs.length === 1 ? '1 run' : `mean of ${end.runs.length} runs`}`],
        hovertemplate: '%{text}<extra></extra>',
      };
      return end.runs.length > 1 ? [mean, singles] : [mean];
    });
    rows(id, shown.map((each) => each.name), traces, axis({
      title: {text: [metric.label, metric.unit].filter(Boolean).join(', '), standoff: 6}, rangemode: fromZero ? 'tozero' : 'normal',
    }));
  }

  // The mean of a case minus that of the reference; a pair may hold them in either order.
  function difference(name, index, reference) {
    const pair = numbers.pairs.find(({cases}) => cases.includes(index) && cases.includes(reference));
    const found = pair && pair.differences[name];
    if (!found || found.mean === null) return null;
    if (pair.cases[0] === index) return found;
    return {mean: -found.mean, low: found.low === null ? null : -found.high, high: found.low === null ? null : -found.low};
  }

  function differences(name, cases) {
    const metric = numbers.metrics[name];
    const reference = numbers.cases[Number(one('reference').value)];
    // The same rows as `ends`, so that the two figures align; the row of the reference stays empty.
    const shown = cases.filter((each) => each.ends[name].runs.length);
    const traces = shown.flatMap((each, row) => {
      const found = each !== reference && difference(name, numbers.cases.indexOf(each), numbers.cases.indexOf(reference));
      if (!found) return [];
      const {mean, low, high} = found;
      const tint = ofCase(each);
      const interval = low === null ? '' :
        `<br>${100 * numbers.confidence} % interval ${signed(low, metric)} … ${signed(high, metric)}`;
      return [{
        x: [mean], y: [row + 0.25], name: each.name, mode: 'markers',
        error_x: {
          type: 'data', symmetric: false, array: [low === null ? 0 : high - mean], arrayminus: [low === null ? 0 : mean - low],
          color: tint, thickness: 2, width: low === null ? 0 : 6,
        },
        marker: {size: 11, symbol: `${each.sign.mark}${low === null ? '-open' : ''}`, color: tint},
        text: [`<b>${escaped(each.name)}</b><br>minus ${escaped(reference.name)}`
          + `<br>${metric.label} ${signed(mean, metric)} ${metric.differenceUnit}${interval}`],
        hovertemplate: '%{text}<extra></extra>',
      }];
    });
    // An invisible mark keeps zero away from the edge of the figure.
    if (traces.length) traces.push({x: [0], y: [0], mode: 'markers', marker: {size: 16, opacity: 0}, hoverinfo: 'skip'});
    rows('differences', shown.map((each) => each.name), traces, axis({
      title: {text: `difference of ${metric.label}, ${metric.differenceUnit}`, standoff: 6},
    }), [{type: 'line', x0: 0, x1: 0, yref: 'paper', y0: 0, y1: 1, line: {color: colour('faint'), width: 1, dash: '4px,3px'}}]);
  }

  function drawAll() {
    const selected = chosen();
    const cases = numbers.cases.filter((_, index) => selected.has(index));
    for (const row of all('[data-cases]')) {
      row.hidden = !row.dataset.cases.split(' ').every((index) => selected.has(Number(index)));
    }
    one('count').textContent = `${cases.length} of ${numbers.cases.length} cases shown`;
    const metric = one('metric').value;
    ends('final', metric, cases, false);
    differences(metric, cases);
    for (const name of [...all('#metric option').map((option) => option.value), 'loss']) curves(name, cases);
    schedule(cases);
    ends('throughput', 'throughput', cases, true);
  }

  function filter() {
    const words = one('words').value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const label of all('.cases label')) {
      const text = numbers.cases[Number(label.dataset.case)].text;
      label.hidden = !words.every((word) => text.includes(word));
    }
    drawAll();
  }

  function choose(checked) {
    for (const box of all('input[name=case]')) if (!box.parentElement.hidden) box.checked = checked;
    drawAll();
  }

  function show(theme) {
    root.dataset.theme = theme;
    one('theme-name').textContent = theme;
    drawAll();
  }

  async function copy(button) {
    const command = button.parentElement.querySelector('code');
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = 'copied';
    } catch (error) {
      // Browsers may refuse a local file access to the clipboard, but the selection can be copied.
      getSelection().selectAllChildren(command);
      button.textContent = document.execCommand('copy') ? 'copied' : 'selected';
    }
    setTimeout(() => { button.textContent = 'copy'; }, 1500);
  }

  const dark = matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', () => show(dark.matches ? 'dark' : 'light'));
  one('theme').addEventListener('click', () => show(root.dataset.theme === 'dark' ? 'light' : 'dark'));
  one('words').addEventListener('input', filter);
  one('all').addEventListener('click', () => choose(true));
  one('none').addEventListener('click', () => choose(false));
  for (const input of all('input[name=case], input[name=axis], #single, #metric, #reference')) input.addEventListener('change', drawAll);
  for (const button of all('.copy')) button.addEventListener('click', () => copy(button));
  // The line breaks in names depend on the width of the page.
  let width = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth !== width) drawAll();
    width = innerWidth;
  });
  show(dark.matches ? 'dark' : 'light');
})();
