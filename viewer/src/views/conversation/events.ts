// The events of a run, as record/events.py has them, read without trust: earlier versions wrote some of them.
import type { Conversation, RunPage } from "../../shapes";
import { asText, isFields } from "./chat_shapes";

type Fields = Record<string, unknown>;

/** A reward function's part in a run. */
export interface Scored {
  name: string;
  score: number | null;
  /** Null if the thresholds are not known. */
  threshold: number | null;
  decides: boolean;
  error: { message: string; details: string; boundary: string } | null;
  isRemoved: boolean;
  reason: string;
  metrics: [string, number][];
  fields: Fields | null;
  judges: Fields[];
  ms: number | null;
}

/** The functions of a run: those of its eval in their order, then others that the events name. */
export function scoredBy(page: RunPage, at: number, conversation: Conversation | null): Scored[] {
  const model = page.runs.model[at];
  const known = page.head.functions.filter((each) => each.model === model);
  const events = conversation?.scores ?? [];
  const named = events.flatMap((event) => [...keysOf(event.scores), ...keysOf(event.errors), ...(event.removed ? [String(event.name)] : [])]);
  const stored = Object.keys(page.runs.scores).filter((name) => numberOf(page.runs.scores[name][at]) !== null);
  const names = new Set([...known.map((each) => each.name), ...stored, ...named]);
  return [...names].map((name) => {
    const shape = known.find((each) => each.name === name);
    const event = events.find((each) => name in fieldsOf(each.scores) || name in fieldsOf(each.errors) || (each.removed && each.name === name));
    const error = event && fieldsOf(event.errors)[name];
    const notes = (key: string) => [...events].reverse().map((each) => fieldsOf(each[key])[name]).find((value) => value !== undefined);
    const fields = notes("fields");
    const reason = notes("reasons");
    return {
      name,
      score: numberOf(page.runs.scores[name]?.[at]) ?? numberOf(fieldsOf(event?.scores)[name]),
      threshold: shape?.threshold ?? null,
      decides: shape?.decides ?? true,
      error: isFields(error) ? { message: asText(error.message), details: asText(error.details), boundary: String(error.boundary ?? "reward") } : null,
      isRemoved: event?.removed === true && event.name === name,
      reason: reason === undefined ? "" : asText(reason),
      metrics: metricsOf(notes("metrics")),
      fields: isFields(fields) && Object.keys(fields).length ? fields : null,
      judges: Array.isArray(event?.judges) ? event.judges.filter(isFields) : [],
      ms: numberOf(event?.ms),
    };
  });
}

export function metricsOf(value: unknown): [string, number][] {
  return Object.entries(fieldsOf(value)).filter((pair): pair is [string, number] => typeof pair[1] === "number");
}

/** The ground truth that the functions got; null if the row has none. */
export function expectedOf(conversation: Conversation): unknown {
  const truth = conversation.scores.map((event) => event.ground_truth).find((value) => value !== undefined && value !== null);
  return truth === undefined || asText(truth).trim() === "" ? null : truth;
}

export function messagesOf(conversation: Conversation): unknown[] {
  const messages = conversation.rollout.messages;
  return Array.isArray(messages) ? messages : [];
}

/** How many of the messages are the prompt's. */
export function promptLength(conversation: Conversation): number {
  return numberOf(conversation.rollout.n_prompt) ?? 0;
}

/** What was printed, by whom and where: [title, text]. */
export function outputsOf(conversation: Conversation): [string, string][] {
  const of = (event: Fields, who: string) =>
    Object.entries(fieldsOf(event.output)).map(([kind, text]): [string, string] => [`${kind} of ${who}`, asText(text)]);
  const rollout = of(conversation.rollout, "the rollout");
  const scoring = conversation.scores.flatMap((event) => {
    const names = [...keysOf(event.scores), ...keysOf(event.errors)];
    return of(event, names.length ? names.join(", ") : "the scoring");
  });
  return [...rollout, ...scoring].filter(([, text]) => text !== "");
}

export function fieldsOf(value: unknown): Fields {
  return isFields(value) ? value : {};
}

function keysOf(value: unknown): string[] {
  return Object.keys(fieldsOf(value));
}

export function numberOf(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}
