import "../styles/index.css";
import { render } from "preact";
import { App } from "./app";
import { EmbeddedSource } from "./source/embedded";
import { HttpSource } from "./source/http";
import { setSource } from "./source/source";
import { followAddress } from "./state/route";

function start() {
  setSource(document.getElementById("index") ? new EmbeddedSource() : new HttpSource());
  followAddress();
  document.getElementById("static")?.remove();
  render(<App />, document.getElementById("app")!);
}

// In a report the elements that are needed stand before this script, and chunks of conversations, up to hundreds of MB,
// behind it: the first paint does not wait for them.
if (document.getElementById("app")) start();
else document.addEventListener("DOMContentLoaded", start);
