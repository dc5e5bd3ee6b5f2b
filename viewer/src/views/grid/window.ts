// The part of the grid that is in sight.
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { ROW_PX } from "./sizes";

/** Rows that are laid out above and below those in sight; scrolling by fewer lays out nothing. */
const MARGIN = 12;
const MOST_PRINTED = 2000;

export interface GridWindow {
  first: number;
  visible: number;
}

export function useWindow(scroller: RefObject<HTMLElement>, nRows: number): GridWindow {
  const [view, setView] = useState<GridWindow>({ first: 0, visible: 30 });
  useLayoutEffect(() => {
    const frame = scroller.current;
    if (!frame) return;
    const look = () => {
      const step = MARGIN / 2;
      const first = Math.floor(frame.scrollTop / ROW_PX / step) * step;
      const visible = Math.ceil(frame.clientHeight / ROW_PX);
      setView((before) => (before.first === first && before.visible === visible ? before : { first, visible }));
    };
    look();
    frame.addEventListener("scroll", look, { passive: true });
    const observer = new ResizeObserver(look);
    observer.observe(frame);
    const print = () => setView({ first: 0, visible: MOST_PRINTED });
    addEventListener("beforeprint", print);
    addEventListener("afterprint", look);
    return () => {
      removeEventListener("beforeprint", print);
      removeEventListener("afterprint", look);
      frame.removeEventListener("scroll", look);
      observer.disconnect();
    };
  }, [nRows]);
  return view;
}

/** The places to lay out, and `always` that of the cell with the focus, so that it does not lose it. */
export function rowsInSight({ first, visible }: GridWindow, nRows: number, always: number | null): number[] {
  const begin = Math.max(0, Math.min(first, nRows) - MARGIN);
  const end = Math.min(nRows, first + visible + MARGIN);
  const places = Array.from({ length: Math.max(0, end - begin) }, (_, index) => begin + index);
  if (always !== null && always >= 0 && always < begin) places.unshift(always);
  if (always !== null && always >= end) places.push(always);
  return places;
}

export function useWidth(element: RefObject<HTMLElement>): number {
  const [width, setWidth] = useState(1000);
  useLayoutEffect(() => { if (element.current?.clientWidth) setWidth(element.current.clientWidth); }, []);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => { if (entry.contentRect.width) setWidth(Math.round(entry.contentRect.width)); });
    if (element.current) observer.observe(element.current);
    return () => observer.disconnect();
  }, []);
  return width;
}
