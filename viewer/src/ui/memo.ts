// A component that is laid out again only if one of its properties is another.
import { Component, type ComponentChildren, type FunctionComponent, h } from "preact";

export function memo<P extends object>(layout: (props: P) => ComponentChildren): FunctionComponent<P> {
  class Memo extends Component<P> {
    override shouldComponentUpdate(next: P): boolean {
      const names = Object.keys(next) as (keyof P)[];
      return names.some((name) => next[name] !== this.props[name]);
    }
    override render() {
      return h(layout as FunctionComponent<P>, this.props);
    }
  }
  return Memo as unknown as FunctionComponent<P>;
}
