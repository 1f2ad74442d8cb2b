package action

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Post sends the event as the JSON body of a POST. It is done if the status is 2xx. A
// receiver checks Lapse-Signature: t=1767225600,v1=<hex>, by HMAC-SHA-256 with the secret
// over "1767225600." and the body, and refuses old times. Idempotency-Key is main-4711 for
// sequence 4711 of database main, the same for each try.
type Post struct {
	url              *url.URL
	database, secret string
	client           http.Client
}

// maxReply limits the header of a reply, and what is read of its body.
const maxReply = 64 << 10

// ErrURL is the error of NewPost. It has nothing of the URL, which may have a login.
var ErrURL = errors.New("use a URL of http or https, like https://hooks.example.net/trials")

// NewPost returns requests to an address, which may have a login, about events of a database.
// With a secret each has a signature. Redirects are not followed: the signed body would go
// to an address that nobody chose.
func NewPost(address, database, secret string) (*Post, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Fragment != "" {
		return nil, ErrURL
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes, transport.MaxIdleConnsPerHost, transport.DisableCompression = maxReply, client.MaxWorkers, true
	return &Post{u, database, secret, http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// HasLogin reports whether the URL has a login.
func (p *Post) HasLogin() bool { return p.url.User != nil }

// String returns scheme and host of the URL: the rest may be secret.
func (p *Post) String() string { return p.url.Scheme + "://" + p.url.Host }

// request returns the body and headers of a request. The time is in the signature, so that
// a receiver can refuse a request that is sent again later.
func (p *Post) request(e *client.Event, at time.Time) (body []byte, headers http.Header, err error) {
	if body, err = e.MarshalJSON(); err != nil {
		return nil, nil, err
	}
	headers = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"lapse"}, "Idempotency-Key": {fmt.Sprintf("%s-%d", p.database, e.Seq)}}
	if p.secret != "" {
		mac := hmac.New(sha256.New, []byte(p.secret))
		fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
		headers.Set("Lapse-Signature", fmt.Sprintf("t=%d,v1=%x", at.Unix(), mac.Sum(nil)))
	}
	return body, headers, nil
}

// Preview implements Action.
func (p *Post) Preview(e *client.Event) (any, error) {
	body, headers, err := p.request(e, time.Now())
	return map[string]any{"post": p.String(), "headers": headers, "body": json.RawMessage(body)}, err
}

// Try implements Action. Errors have scheme and host at most: path, query and login may be
// secret.
func (p *Post) Try(ctx context.Context, e *client.Event) error {
	body, headers, err := p.request(e, time.Now())
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url.String(), bytes.NewReader(body))
	if err != nil {
		return ErrURL
	}
	request.Header = headers
	reply, err := p.client.Do(request)
	if err != nil {
		if of, ok := errors.AsType[*url.Error](err); ok {
			err = of.Err // without the URL
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s has not answered: %w", p, err)
	}
	_, _ = io.CopyN(io.Discard, reply.Body, maxReply) // a short reply leaves the connection usable
	_ = reply.Body.Close()
	if reply.StatusCode/100 != 2 {
		return fmt.Errorf("%s has answered %d %s", p, reply.StatusCode, http.StatusText(reply.StatusCode))
	}
	return nil
}
