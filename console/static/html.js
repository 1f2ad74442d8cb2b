// What every page uses of the libraries.
import {h, Fragment, render} from 'preact';
import htm from 'htm';

export const html = htm.bind(h);
export {Fragment, render};
export {useEffect, useLayoutEffect, useRef, useState} from 'preact/hooks';
export {signal, computed, effect} from '@preact/signals';
