// Applies Grafana's own transformations (@grafana/data) to frames made of answers of Prometheus, as its plugin makes them
// for tables.  Reads [{transformations, answers: [{refId, result}]}] and writes, for each, names and number of lines.
// @grafana/data expects a browser; happy-dom stands in for it.
const { Window } = require('happy-dom');
const page = new Window({ url: 'http://localhost/' });
globalThis.window = page;
for (const name of ['document', 'localStorage', 'location', 'HTMLElement', 'Element', 'Node', 'MutationObserver']) {
  try {
    globalThis[name] = page[name];
  } catch {
    // Node has one of its own that cannot be replaced.
  }
}
const data = require('@grafana/data');
const { firstValueFrom } = require('rxjs');

const known = new Map(Object.values(data.standardTransformers).map((entry) => [entry.id, entry]));

// Since Grafana 13 the registry holds functions that load a transformation, before that the transformations themselves.
function both(entry) {
  const load = async () => entry;
  for (const [key, value] of Object.entries(entry)) {
    Object.defineProperty(load, key, { value });
  }
  return load;
}
data.standardTransformersRegistry.setInit(() =>
  [...known.values()].map((entry) => ({
    id: entry.id,
    name: entry.name,
    transformation: both(entry),
    editor: () => null,
  }))
);

function frame({ refId, result }, isOneOfMany) {
  const labels = [...new Set(result.flatMap((series) => Object.keys(series.metric)))].sort();
  return data.toDataFrame({
    refId,
    fields: [
      { name: 'Time', type: 'time', values: result.map(() => 1) },
      ...labels.map((label) => ({ name: label, type: 'string', values: result.map((series) => series.metric[label]) })),
      {
        name: isOneOfMany ? `Value #${refId}` : 'Value',
        type: 'number',
        values: result.map((series) => Number(series.value[1])),
      },
    ],
  });
}

async function main() {
  const panels = JSON.parse(require('fs').readFileSync(0, 'utf8'));
  const made = [];
  for (const { transformations, answers } of panels) {
    const frames = answers.map((answer) => frame(answer, answers.length > 1));
    // Partition by values belongs to Grafana's program and not to this library.
    const steps = transformations.filter((step) => known.has(step.id));
    const found = await firstValueFrom(data.transformDataFrame(steps, frames));
    const names = found[0].fields.map((field) => data.getFieldDisplayName(field, found[0], found));
    made.push({ frames: found.length, lines: found[0].length, names });
  }
  process.stdout.write(JSON.stringify(made));
}

main();
