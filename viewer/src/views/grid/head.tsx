// The heads of the grid's columns.
import type { RunPage } from "../../shapes";
import { gridLayout } from "../../state/run_ids";
import type { GridSizes } from "./sizes";
import { Unseen } from "../../ui/parts";

export function GridHead({ page, sizes }: { page: RunPage; sizes: GridSizes }) {
  const { columns } = gridLayout(page);
  const rows = sizes.headRows(page);
  return (
    <div class="grid-head" role="rowgroup">
      {rows > 1 && (
        <div class="grid-line" role="row" aria-rowindex={1}>
          <div class="grid-prompt" role="columnheader" aria-colindex={1}>Model</div>
          {page.head.models.map((model, index) => {
            const first = columns.findIndex((each) => each.model === index);
            const wide = columns.filter((each) => each.model === index).length;
            return wide > 0 && (
              <div key={model} class="grid-model" role="columnheader" aria-colindex={first + 2} aria-colspan={wide}
                style={{ gridColumn: `span ${wide}` }} title={model}>{model}{index > 0 && " (baseline)"}</div>
            );
          })}
          <div role="gridcell" aria-colindex={columns.length + 2} />
        </div>
      )}
      <div class="grid-line" role="row" aria-rowindex={rows}>
        <div class="grid-prompt" role="columnheader" aria-colindex={1}>Row</div>
        {columns.map((column, at) => (
          <div key={at} role="columnheader" aria-colindex={at + 2}>
            {sizes.cell === "slim" ? <><Unseen>run </Unseen>{column.run}</> : `run ${column.run}`}
          </div>
        ))}
        <div class="number" role="columnheader" aria-colindex={columns.length + 2} title={`Runs of the row${rows > 1 ? ` by ${page.head.models[0]}` : ""} that passed, of those that were measured`}>passed</div>
      </div>
    </div>
  );
}
