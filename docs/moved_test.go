package docs

// moved maps where the pages say that a file is to where it is now.
var moved = map[string]string{
	"nats.conf":          "deploy/nats.conf",
	"docker-compose.yml": "deploy/docker-compose.yml",

	"processor/service/endpoints.go":       "processor/endpoints.go",
	"processor/service/intake.go":          "processor/intake.go",
	"processor/service/service.go":         "processor/service.go",
	"processor/service/requests.go":        "processor/requests.go",
	"processor/eventlog/mutations.go":      "processor/mutations.go",
	"processor/eventlog/append.go":         "processor/append.go",
	"processor/writer/writer.go":           "processor/writer.go",
	"processor/writer/turn.go":             "processor/writer.go",
	"processor/writer/pipeline.go":         "processor/pipeline.go",
	"processor/writer/recover.go":          "processor/recover.go",
	"processor/clock/clock.go":             "processor/clock.go",
	"processor/machine/machine.go":         "processor/machine.go",
	"processor/machine/decide.go":          "processor/decide.go",
	"processor/machine/overlay.go":         "processor/overlay.go",
	"processor/machine/batch.go":           "processor/batch.go",
	"processor/machine/sweep.go":           "processor/sweep.go",
	"processor/machine/testdata/scenarios": "processor/testdata/scenarios",
	"processor/lease/lease.go":             "processor/lease.go",
	"processor/answer/forecast.go":         "processor/forecast.go",
	"projections/query/engine.go":          "query/engine.go",
	"schema/values/value.go":               "values/value.go",
	"lapsetest/doc.go":                     "test/lapsetest/doc.go",
	"lapsetest":                            "test/lapsetest",
	"lapsetest/bubble":                     "test/lapsetest/bubble",
}
