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

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
