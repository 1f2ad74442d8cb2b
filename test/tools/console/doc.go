// Package console tests the pages of the console in a browser, with chromedp.
package console
