// What every page uses of the libraries.
import {h} from 'preact';
import htm from 'htm';

export const html = htm.bind(h);
export {render} from 'preact';
export {useEffect, useLayoutEffect, useRef, useState} from 'preact/hooks';
export {effect, signal} from '@preact/signals';
export {default as uPlot} from 'uplot';
export {default as plotStyle} from 'uplot/dist/uPlot.min.css';
