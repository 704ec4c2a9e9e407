// Wake, sleep, pause and resume: which service each fits, and how the result is told.

import { toast } from './dom.js';
import { ask } from './stream.js';

/** Each action: its word, what it does, which services it fits, and why not the others. */
export const ACTIONS = {
  wake: { word: 'Wake', hint: 'Scale up now, as a request would', fits: (s) => s.phase === 'Asleep', else: 'not asleep' },
  sleep: { word: 'Sleep', hint: 'Sleep without waiting for the cooldown, if no request is in flight', fits: (s) => s.phase === 'Serving', else: 'not awake' },
  pause: { word: 'Pause', hint: 'Prevent sleep until resumed', fits: (s) => !s.paused, else: 'paused already' },
  resume: { word: 'Resume', hint: 'Allow sleep when idle', fits: (s) => s.paused, else: 'not paused' },
};

/** Sends a request and shows the result. */
export async function act(namespace, name, what) {
  try {
    const { message } = await ask(namespace, name, what);
    toast(message);
  } catch (failure) {
    toast(failure.message, true);
  }
}
