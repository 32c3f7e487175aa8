/**
 * Places the operators of a graph: stages one after the other along the flow, operators within their stage.
 *
 * Two layered layouts in one another: first the operators of each group, then the groups as nodes of a coarser graph.
 * So the frames of stages cannot overlap. Lengths along the flow are `main`, those across it `cross`; the caller says
 * which of them is x.
 */

/** Ranks by the longest path from a source. A cycle cannot occur in a plan; a broken one ends at the number of nodes. */
function ranks(keys, edges) {
  const rank = new Map(keys.map((key) => [key, 0]));
  for (let round = 0; round < keys.length; round += 1) {
    let isStable = true;
    for (const [from, to] of edges) {
      if (rank.get(to) < rank.get(from) + 1) {
        rank.set(to, rank.get(from) + 1);
        isStable = false;
      }
    }
    if (isStable) break;
  }
  return rank;
}

/** The keys of each rank, ordered by where their upstream neighbours are, so that few edges cross. */
function layers(keys, edges) {
  const rank = ranks(keys, edges);
  const rows = [];
  for (const key of keys) (rows[rank.get(key)] ??= []).push(key);
  const position = new Map();
  for (const row of rows) {
    const weight = new Map(
      row.map((key, index) => {
        const upstream = edges.filter(([, to]) => to === key).map(([from]) => position.get(from) ?? 0);
        return [key, upstream.length ? upstream.reduce((a, b) => a + b, 0) / upstream.length : index];
      }),
    );
    row.sort((a, b) => weight.get(a) - weight.get(b));
    row.forEach((key, index) => position.set(key, index - (row.length - 1) / 2));
  }
  return rows;
}

/** Places boxes in layers; returns their places, and the size of all. `size` gives `{main, cross}` of a key. */
function arrange(keys, edges, size, gap) {
  const rows = layers(keys, edges);
  const spans = rows.map((row) => row.reduce((sum, key) => sum + size(key).cross, 0) + gap.cross * (row.length - 1));
  const cross = Math.max(0, ...spans);
  const places = new Map();
  let main = 0;
  rows.forEach((row, index) => {
    let at = (cross - spans[index]) / 2;
    const depth = Math.max(...row.map((key) => size(key).main));
    for (const key of row) {
      places.set(key, { main, cross: at });
      at += size(key).cross + gap.cross;
    }
    main += depth + gap.main;
  });
  return { places, main: Math.max(0, main - gap.main), cross };
}

/**
 * @param {{name: string, group: string}[]} nodes In topological order. `group` is the stage, or the node itself.
 * @param {{from: string, to: string}[]} edges
 * @param {{node: {main: number, cross: number}, gap: {main: number, cross: number}, pad: number, title: {main: number, cross: number}}} sizes
 *   `title` is the room for the title of a frame, before its operators.
 * @returns {{nodes: Map<string, {main: number, cross: number}>, groups: Map<string, {main, cross, size}>, main, cross}}
 */
export function layout(nodes, edges, sizes) {
  const groupOf = new Map(nodes.map((node) => [node.name, node.group]));
  const known = edges.filter(({ from, to }) => groupOf.has(from) && groupOf.has(to));
  const groups = [...new Set(groupOf.values())];
  const inner = new Map(
    groups.map((group) => {
      const names = nodes.filter((node) => node.group === group).map((node) => node.name);
      const own = known.filter(({ from, to }) => groupOf.get(from) === group && groupOf.get(to) === group);
      return [group, arrange(names, own.map(({ from, to }) => [from, to]), () => sizes.node, sizes.gap)];
    }),
  );
  const frame = (group) => ({
    main: inner.get(group).main + 2 * sizes.pad + sizes.title.main,
    cross: inner.get(group).cross + 2 * sizes.pad + sizes.title.cross,
  });
  const between = known.map(({ from, to }) => [groupOf.get(from), groupOf.get(to)]).filter(([from, to]) => from !== to);
  const outer = arrange(groups, between, frame, sizes.gap);
  const result = { nodes: new Map(), groups: new Map(), main: outer.main, cross: outer.cross };
  for (const group of groups) {
    const at = outer.places.get(group);
    result.groups.set(group, { ...at, size: frame(group) });
    for (const [name, place] of inner.get(group).places) {
      result.nodes.set(name, {
        main: at.main + sizes.pad + sizes.title.main + place.main,
        cross: at.cross + sizes.pad + sizes.title.cross + place.cross,
      });
    }
  }
  return result;
}
