// Events of the log, as the console passes them on.
import {Failure, send} from './api.js';
import {member} from './json.js';

// follow reads the feed until signal aborts, across breaks. onEvents gets {events, last, now}
// whenever some have come, the feed is further, or has all up to now; onState an error's
// message, once it is connected '' or why it began anew: the log does not reach last.
export async function follow(query, last, signal, onEvents, onState) {
  let anew = '';
  for (let wait = 250; !signal.aborted; wait = Math.min(2 * wait, 8000)) {
    try {
      const headers = last === '' ? {} : {'Last-Event-ID': last};
      const response = await send('feed?' + query, {headers, signal});
      onState(anew);
      wait = 250;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const {done, value} = await reader.read();
        if (signal.aborted) return; // what came then is read again, if at all
        if (done) break;
        const blocks = (rest + value).split('\n\n');
        rest = blocks.pop();
        const events = [];
        let now = false;
        for (const block of blocks) {
          let data = '',
            name = '',
            id = last;
          for (const line of block.split('\n')) {
            if (line.startsWith('id: ')) id = line.slice(4);
            else if (line.startsWith('event: ')) name = line.slice(7);
            else if (line.startsWith('data: ')) data = line.slice(6);
          }
          if (name === 'fault')
            throw new Failure(...['code', 'error', 'message'].map(member => JSON.parse(data)[member]));
          last = id;
          if (name === 'now') now = true;
          if (data) events.push(data);
        }
        onEvents({events, last, now});
      }
    } catch (fault) {
      if (signal.aborted) return;
      onState(fault.message);
      if (fault.code === 400 && last !== '') [anew, last] = [fault.message, ''];
      else if (fault.code >= 400 && fault.code < 429) return; // trying again will not help
    }
    await new Promise(done => {
      setTimeout(done, wait);
      signal.addEventListener('abort', done, {once: true});
    });
  }
}

// eventAt returns the text of the event at a sequence, undefined if the log has it no more.
export function eventAt(seq) {
  const abort = new AbortController();
  return new Promise((done, fail) =>
    follow(
      new URLSearchParams({from: seq}),
      '',
      abort.signal,
      ({events: [first], now}) => {
        if (!first && !now) return;
        abort.abort();
        done(first && member(first, 'seq') === String(seq) ? first : undefined);
      },
      text => {
        if (!text) return;
        abort.abort();
        fail(new Error(text));
      },
    ),
  );
}
