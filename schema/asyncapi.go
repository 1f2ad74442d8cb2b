package schema

import _ "embed"

// AsyncAPI is asyncapi.yaml: subjects, headers and bodies, described for other
// languages.
//
//go:embed asyncapi.yaml
var AsyncAPI []byte
