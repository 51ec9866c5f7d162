// Runs as an address names them: an example by its name, a live run by the request that is started
// again. The server says which (`made`, see app/studio/requested.py); null is a file, false a run
// that no address can hold.

import { answered, letGo } from "./feed.js";
import { keepList, keptList } from "./storage.js";

export const NEEDS_FILE =
  "This address is of a file that was opened on another page: open that file here to see it.";
const UNSAID =
  "This address is of a run that an address cannot hold: its prompt is too long, or its method " +
  "is a file of one's own.";
const CUT_ADDRESS = "the address names no valid run: it may have been cut";
const MOST_ASKED = 5000; // characters of all requests in an address
const LOOK_AGAIN = 500; // milliseconds between looks at runs that go on
const OPENED = "draftscope-examples", // NAME=TICKET each, of this tab
  MOST_OPENED = 24;
const LINKS = ["run", "other", "third", "fourth"]; // tickets that only let one look

/** What the address says of these runs; {} as long as the server has not told of all. */
export function namesOf(made) {
  if (!made.length || made.includes(undefined)) return {};
  if (made.every((each) => typeof each === "string")) return { trace: made.join(",") };
  const long = encodeURIComponent(JSON.stringify(made)).length > MOST_ASKED;
  return { made: long ? made.map((each) => (isRequest(each) ? false : each)) : made };
}

/** Whether a name is a request to start, and no example. */
export function isRequest(made) {
  return !!made && typeof made === "object";
}

/** Share runs so that others may look; gives their names for a link. Throws what went wrong. */
export async function sharedNames(source, tickets) {
  const links = await Promise.all(tickets.map((ticket) => answered(source.share({ ticket }))));
  const failed = links.find((answer) => answer.error);
  if (failed) throw new Error(failed.error);
  return Object.fromEntries(links.map(({ link }, at) => [LINKS[at], link]));
}

/** The tickets of what an address names: {tickets, said: a sentence on what is not there, lacks:
 *  whether it needs a file}. `runs`: tickets as this page wrote them, or null. `state`:
 *  null where the address is another tab's. isWanted(): nothing newer was asked for. */
export async function ticketsOf(source, state, runs, isWanted) {
  if (!state) return { tickets: [], said: "" };
  if (runs?.length && !(state.trace && (await areGone(source, runs)))) return { tickets: runs };
  if (state.trace && source.example) return openNamed(source, state.trace.split(","), isWanted);
  if (Array.isArray(state.made) && source.start)
    return openNamed(source, state.made.slice(0, 4), isWanted);
  if (state.run && source.share)
    return { tickets: LINKS.map((name) => state[name]).filter(Boolean) };
  const named = /[#&](run|trace|made)=/.test(window.location.hash);
  return { tickets: [], said: named && !state.trace && !state.run ? CUT_ADDRESS : "" };
}

/** Wait for runs that were just started: they have their rounds then; `waits`: it takes a while. A
 *  file that is being written may never end, so nothing waits for it, nor once the runs are not
 *  wanted any more. */
export async function whenEnded(source, tickets, isWanted, waits = () => {}) {
  const isAwaited = ({ state, follows }) =>
    state === "waiting" || (state === "running" && !follows);
  while (tickets.length && isWanted()) {
    const { runs = [] } = await answered(source.runs({ tickets }));
    if (!runs.some(isAwaited)) return;
    waits();
    await new Promise((done) => setTimeout(done, LOOK_AGAIN));
  }
}

async function areGone(source, tickets) {
  if (!source.runs) return false;
  const { runs } = await answered(source.runs({ tickets }));
  return !!runs && runs.length < tickets.length;
}

/** The run of an example, {ticket} or {error}: of one that ships the run that this tab has of it,
 * as long as the server does. A file of the command line may have been written anew. */
export async function exampleOf(source, name) {
  const key = `${name}=`,
    ticket = keptList(OPENED)
      .find((each) => each.startsWith(key))
      ?.slice(key.length);
  if (ticket && source.runs && !(await areGone(source, [ticket]))) return { ticket };
  const answer = await answered(source.example({ name })),
    others = keptList(OPENED).filter((each) => !each.startsWith(key));
  if (answer.ships) keepList(OPENED, [key + answer.ticket, ...others].slice(0, MOST_OPENED));
  return answer;
}

/** Open the examples and start the requests, each in its place: all of them or, said why, none.
 *  What was started goes on only where it is still wanted. */
export async function openNamed(source, made, isWanted = () => true) {
  const requests = made.filter(isRequest),
    begun = requests.length ? await answered(source.start({ asked: requests })) : { tickets: [] },
    started = [...(begun.tickets ?? [])];
  const answers = await Promise.all(
    made.map((each, at) => {
      const isAgain = made.indexOf(each) < at; // a run beside itself
      if (typeof each === "string")
        return isAgain ? answered(source.example({ name: each })) : exampleOf(source, each);
      return isRequest(each) ? { ticket: started.shift() } : {};
    }),
  );
  const tickets = answers.map(({ ticket }) => ticket).filter(Boolean),
    failed = [begun, ...answers].find(({ error }) => error),
    lacks = made.includes(null);
  if (failed || !isWanted()) for (const ticket of begun.tickets ?? []) letGo(source, ticket);
  const said = failed?.error ?? (lacks ? NEEDS_FILE : made.includes(false) ? UNSAID : "");
  return { tickets: failed ? [] : tickets, said, lacks };
}
