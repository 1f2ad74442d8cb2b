// Package console tests what runs in a browser, with chromedp: the pages of the console, and
// programs with the TypeScript package.
package console
