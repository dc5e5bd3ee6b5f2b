// A short sentence at the foot of the page, which screen readers read out too.
import { signal } from "@preact/signals";

const notice = signal("");
let timer: ReturnType<typeof setTimeout> | undefined;

/** Show a sentence for some seconds. */
export function notify(text: string): void {
  clearTimeout(timer);
  notice.value = text;
  timer = setTimeout(() => { notice.value = ""; }, 4000);
}

const spoken = signal("");

/** Have screen readers read a sentence that the page shows in another way. */
export function announce(text: string): void {
  spoken.value = text;
}

export function Notices() {
  return (
    <>
      <div class="notice" role="status" data-shown={notice.value !== ""}>{notice.value}</div>
      <div class="visually-hidden" role="status">{spoken.value}</div>
    </>
  );
}
