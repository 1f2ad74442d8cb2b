package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lapsedb/lapse/client"
)

// Info describes a session of a user.
type Info struct {
	ID   string    // the browser's secret: show it to nobody
	Used time.Time // last request, to a tenth of the idle time
	End  time.Time // at the latest
	Data []byte    // as the library encodes it
}

// userOf returns the user of a session from its value of UserKey, "" for none.
func userOf(value any) string {
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}

func ofUser(user string) client.QueryOption {
	return client.Where("doc.user == params.user", map[string]string{"user": user})
}

// List returns the live sessions of a user, the last used first.
func (s *Store) List(ctx context.Context, user string) ([]Info, error) {
	var all []Info
	for item, err := range client.Query[document](ctx, s.Sessions, ofUser(user)) {
		if _, foreign := errors.AsType[*client.DecodeError](err); foreign {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Info{item.ID, item.Modified, time.Unix(item.Value.End, 0).UTC(), item.Value.Data})
	}
	slices.SortFunc(all, func(a, b Info) int { return b.Used.Compare(a.Used) })
	return all, nil
}

// EndAll ends the sessions of a user, except those with the given ids, and returns how many.
// It may miss a login of the same moment, and a new token: first let logins fail that it is
// to keep out. After an error, which keeps no other session alive, it may be called again.
func (s *Store) EndAll(ctx context.Context, user string, except ...string) (ended int, err error) {
	for before := -1; ended > before && err == nil; {
		before = ended
		for page, fault := range client.QueryPages[json.RawMessage](ctx, s.Sessions, ofUser(user), client.Select("/id"), client.PageSize(client.MaxPageSize)) {
			if fault != nil {
				return ended, fault
			}
			b := s.Sessions.Batch()
			for _, item := range page.Items {
				if !slices.Contains(except, item.ID) {
					b.Delete(item.ID)
				}
			}
			if b.Len() == 0 {
				continue
			}
			results, fault := b.Run(ctx)
			if fault != nil {
				return ended, fault
			}
			for _, r := range results {
				switch {
				case r.Err == nil:
					ended++
				case !errors.Is(r.Err, client.ErrDocumentNotFound): // by another call
					err = errors.Join(err, r.Err)
				}
			}
		}
	}
	return ended, err
}
