// The messages of a conversation, as they really were: all of them are in the page, so that its search finds them.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Conversation } from "../../shapes";
import { copyText } from "../../ui/copy";
import { notify } from "../../ui/notice";
import { asText, type Call, type Item, type Message } from "./chat_shapes";
import { messagesOf, promptLength } from "./events";
import { Fold } from "./folded";
import { joined, type Shown } from "./joined";
import { JsonText, JsonValue } from "./json";
import { layoutOf } from "./json_layout";
import { Markdown } from "./markdown";
import { Escaped, Text } from "./text";

const FIRST = 40;
const STEP = 120;

interface MessagesProps {
  conversation: Conversation;
  /** Lay out the texts as Markdown; they are shown as they were sent without it. */
  isMarkdown?: boolean;
}

export function Messages({ conversation, isMarkdown = false }: MessagesProps) {
  const messages = useMemo(() => joined(messagesOf(conversation)), [conversation]);
  const ofPrompt = promptLength(conversation);
  const made = useGrowing(messages.length);
  // Each item is made once, so that those which are there already cost nothing when others follow.
  const items = useMemo(() => messages.map((message, position) => (
    <MessageItem
      key={position}
      message={message}
      isMarkdown={isMarkdown}
      isFirstOfRollout={ofPrompt > 0 && message.index >= ofPrompt && (messages[position - 1]?.index ?? -1) < ofPrompt}
    />
  )), [messages, isMarkdown]);
  if (!messages.length) return <p class="aside">No messages.</p>;
  return <ol class="messages">{items.slice(0, made)}</ol>;
}

/** The number of messages in the page: a screen of them at once, and then more with each frame until all are there. */
function useGrowing(all: number): number {
  const [made, setMade] = useState(FIRST);
  useEffect(() => {
    if (made >= all) return;
    const timer = setTimeout(() => setMade(made + STEP));
    return () => clearTimeout(timer);
  }, [made, all]);
  return Math.min(made, all);
}

interface MessageItemProps {
  message: Shown;
  isMarkdown: boolean;
  isFirstOfRollout: boolean;
}

function MessageItem({ message, isMarkdown, isFirstOfRollout }: MessageItemProps) {
  const [isRaw, setRaw] = useState(false);
  const name = [message.name, message.answers].filter(Boolean).join(", ");
  return (
    <li class={`message role-${roleClass(message.role)}`}>
      {isFirstOfRollout && <p class="rollout-begins">the rollout begins</p>}
      <div class="message-head">
        <span class="role"><Escaped text={message.role} /></span>
        {name && <span class="message-name"><Escaped text={name} /></span>}
        <span class="message-number">{message.index}</span>
        <CopyText message={message} />
        <button class="plain-button" aria-pressed={isRaw} onClick={() => setRaw(!isRaw)}>JSON</button>
      </div>
      {isRaw ? <Stored message={message} /> : <Body message={message} isMarkdown={isMarkdown} />}
    </li>
  );
}

/** Copies the texts of a message, or all of it if it has none. */
function CopyText({ message }: { message: Shown }) {
  const copy = async () => {
    const texts = message.items.flatMap((item) => (item.kind === "text" ? [item.text] : []));
    const text = texts.length ? texts.join("\n") : JSON.stringify(message.raw, null, 2);
    notify((await copyText(text)) ? "Copied" : "The browser refused to copy. Select the text and copy it.");
  };
  return <button class="plain-button" onClick={copy}>Copy</button>;
}

/** A message, and the results that are joined to it, as they are stored. */
function Stored({ message }: { message: Shown }) {
  const results = [...message.results.values()];
  return <>{[message, ...results].map((each) => <Text class="code" text={JSON.stringify(each.raw, null, 2) ?? ""} />)}</>;
}

function Body({ message, isMarkdown }: { message: Shown; isMarkdown: boolean }) {
  const also = Object.entries(message.also);
  return (
    <>
      {!message.items.length && <p class="aside">(no text)</p>}
      {message.items.map((item) => item.kind === "call"
        ? <CallItem call={item} result={message.results.get(item)} isMarkdown={isMarkdown} />
        : <PlainItem item={item} isMarkdown={isMarkdown} />)}
      {also.length > 0 && (
        <Fold label={<>also: <Escaped text={also.map(([key]) => key).join(", ")} /></>}>
          <JsonValue value={message.also} />
        </Fold>
      )}
    </>
  );
}

function PlainItem({ item, isMarkdown }: { item: Exclude<Item, Call>; isMarkdown: boolean }) {
  if (item.kind === "text") return isMarkdown ? <Markdown text={item.text} /> : <Text text={item.text} />;
  if (item.kind === "refusal") return <div class="refusal"><span class="refusal-word">refused</span> <Text text={item.text} /></div>;
  if (item.kind === "reasoning")
    return (
      <Fold class="reasoning" label={<>reasoning <span class="aside"><Escaped text={beginning(item.text)} /></span></>}>
        {isMarkdown ? <Markdown text={item.text} /> : <Text text={item.text} />}
      </Fold>
    );
  return (
    <div class="part">
      <span class="part-name"><Escaped text={item.name} /></span>
      {item.detail && <Text text={item.detail} />}
      <Fold label="stored form"><JsonValue value={item.raw} /></Fold>
    </div>
  );
}

function CallItem({ call, result, isMarkdown }: { call: Call; result: Message | undefined; isMarkdown: boolean }) {
  const sent = asText(call.arguments);
  return (
    <div class="call">
      <div class="call-head">
        <span class="call-mark" aria-hidden="true">→</span>
        {call.name ? <code class="call-name"><Escaped text={call.name} /></code> : <span class="aside">not a call</span>}
        {call.id !== null && <span class="call-id"><Escaped text={call.id} /></span>}
      </div>
      {sent && sent.trim() !== "{}" && <div class="call-arguments"><JsonText text={sent} /></div>}
      {result
        ? <div class="call-result"><Result message={result} isMarkdown={isMarkdown} /></div>
        : <p class="aside">no result with this id follows</p>}
    </div>
  );
}

function Result({ message, isMarkdown }: { message: Message; isMarkdown: boolean }) {
  const name = message.name ? ` ${message.name}` : "";
  return (
    <>
      <div class="call-head">
        <span class="call-mark" aria-hidden="true">←</span> <span class="aside">result<Escaped text={name} /></span>
        <span class="message-number">{message.index}</span>
      </div>
      {message.items.length ? message.items.map((item) => item.kind === "call" ? null
        : item.kind === "text" && (!isMarkdown || isJson(item.text)) ? <JsonText text={item.text} />
        : <PlainItem item={item} isMarkdown={isMarkdown} />) : <p class="aside">(no text)</p>}
    </>
  );
}

function isJson(text: string): boolean {
  return layoutOf(text) !== null;
}

function beginning(text: string): string {
  const line = text.trimStart().slice(0, 200).replace(/\s+/g, " ");
  return line.length > 90 ? `${line.slice(0, 90)}…` : line;
}

function roleClass(role: string): string {
  return ["system", "developer", "user", "assistant", "tool"].includes(role) ? role : "other";
}
