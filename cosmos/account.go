package cosmos

import (
	"encoding/json"
	"net/http"
)

// location is a region of the account. SDKs send their requests there, so it has the host
// name by which the client came.
type location struct {
	Name     string `json:"name"`
	Endpoint string `json:"databaseAccountEndpoint"`
}

// account describes the account: its only region is where the client was pointed. With the id
// localhost some SDKs stay where they were pointed whatever the region says. An SDK asks
// for this before anything else, and again every few minutes. The consistency decides what
// it expects of reads: Session sends a token of its own writes with them (sessionSeq). On
// a server for tests there is one process, so that every read sees every write.
func (x *exchange) account() (*reply, error) {
	scheme, consistency := "http", "Session"
	if x.TLS != nil {
		scheme = "https"
	}
	if x.options.Test {
		consistency = "Strong"
	}
	here := []location{{"South Central US", scheme + "://" + x.Host + "/"}}
	body, err := json.Marshal(map[string]any{
		"id": "localhost", "_rid": "localhost", "_self": "", "_dbs": "//dbs/", "media": "//media/", "addresses": "//addresses/",
		"writableLocations": here, "readableLocations": here, "enableMultipleWriteLocations": false, "continuousBackupEnabled": false,
		"userConsistencyPolicy":    map[string]string{"defaultConsistencyLevel": consistency},
		"userReplicationPolicy":    map[string]any{"asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 1},
		"systemReplicationPolicy":  map[string]any{"minReplicaSetSize": 1, "maxReplicasetSize": 1},
		"readPolicy":               map[string]int{"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
		"queryEngineConfiguration": `{"maxSqlQueryInputLength":262144,"maxJoinsPerSqlQuery":10}`,
	})
	return &reply{status: http.StatusOK, body: body}, err
}
