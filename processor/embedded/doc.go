// Package embedded is the NATS server inside `lapse serve`.
//
// It has two accounts, because permissions alone don't protect a log: NATS
// publishes on a client's behalf wherever the client's reply subject says,
// with nobody's permissions, into the account of the replier.
// With one account, a pull request with the reply subject
// $JS.API.STREAM.DELETE.LAPSE_main deletes the log.
//
//	LAPSE    JetStream: the log, the mutations, the lease. Only the processor
//	         and the gate log in here.
//	CLIENTS  no JetStream. Whoever connects without credentials is here, and
//	         so is the connection that serves requests.
//
// Little joins the two: mutations go from CLIENTS to LAPSE, and messages of JetStream to
// _INBOX.> and _CLIENTS.> come back. Requests to JetStream pass through the gate, which
// refuses reply subjects other than inboxes. So a message that a client steers can only
// reach clients.
//
// JetStream stays off in CLIENTS: accounts share the disk, its syncs and the end of all
// writes after an error, and a stream publishes without anybody's permissions.
//
// It imports gate and schema. Start reading at Start (embedded.go); then
// accounts.conf.tmpl (the accounts, with the permissions of package gate), check.go and
// quarantine.go (damaged files) and watch.go (clients that use too much memory).
package embedded
