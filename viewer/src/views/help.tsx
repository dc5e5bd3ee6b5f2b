// The dialog that lists the keys of what is shown.
import { signal } from "@preact/signals";
import { keyName, keysAreOn, listedGroups } from "../state/keys";
import { store, stored } from "../state/stored";
import { Dialog } from "../ui/dialog";

export const helpIsOpen = signal(false);
const KEY = "osmosis-keys";
keysAreOn.value = stored(KEY) !== "off";

export function HelpDialog() {
  if (!helpIsOpen.value) return null;
  const turn = (on: boolean) => {
    keysAreOn.value = on;
    store(KEY, on ? null : "off");
  };
  return (
    <Dialog title="Keys" onClose={() => { helpIsOpen.value = false; }}>
      <div class="key-groups">
        {listedGroups().map((group) => (
          <section key={group.title}>
            <h3>{group.title}</h3>
            <dl>
              {group.keys.map((key) => (
                <div key={key.does}>
                  <dt>{key.keys.map((name) => <kbd key={name}>{keyName(name)}</kbd>)}</dt>
                  <dd>{key.does}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <label class="check">
        <input type="checkbox" checked={keysAreOn.value} onChange={(event) => turn(event.currentTarget.checked)} /> Single-key shortcuts
      </label>
    </Dialog>
  );
}
