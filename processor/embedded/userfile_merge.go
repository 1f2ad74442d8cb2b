package embedded

import (
	"slices"
	"strings"
)

// merge adds the file to lapse's configuration, and to lapse's accounts the exports for
// what its accounts import.
//
// An export lists the accounts that may import it, so an account gets what it names and no
// more. Several imports of one subject share an export. Pulls and pings have several
// replies, hence response_type stream.
func (u *userFile) merge(ours map[string]any) {
	if u.users > 0 {
		delete(ours, "no_auth_user") // whoever connects has to log in
	}
	for key, v := range u.keys {
		ours[key] = v
	}
	all := ours["accounts"].(map[string]any)
	for name, v := range u.of {
		all[name] = v
	}
	exports := map[importedSubject]map[string]any{}
	for _, i := range u.imports {
		// Without the importer, i is the key under which imports of one subject meet.
		by := i.by
		i.by = ""
		export := exports[i]
		if export == nil {
			export = map[string]any{i.kind: i.subject, "accounts": []any{}}
			if i.from == "LAPSE" && i.kind == "service" || strings.HasPrefix(i.subject, "$SRV.") {
				export["response_type"], export["threshold"] = "stream", "2m" // of silence; clients ask for heartbeats
			}
			exports[i] = export
			from := all[i.from].(map[string]any)
			list, _ := from["exports"].([]any)
			from["exports"] = append(list, export)
		}
		if importers := export["accounts"].([]any); !slices.Contains(importers, any(by)) {
			export["accounts"] = append(importers, by)
		}
	}
}
