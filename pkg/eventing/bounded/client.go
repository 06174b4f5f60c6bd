package bounded

// LostClient has expressions for a SELECT. They make the server end a session within some 60 s after its
// client is gone without a word, as when the client's machine or the network between them is lost. By the
// defaults of Linux the server needs two hours for that if it waits for the client, and a quarter of an
// hour if it has an answer on its way. Until then the session keeps its locks. The server also ends the
// session of a client that lives, if an answer fills the buffers of the network and the client reads nothing
// for 60 s. It ends the session of a client that lives, and sends nothing in an open transaction for 3 s, as
// a process that stands still: the kernel of its machine answers for it, so that the other limits do not see it.
// A request that has 5 s, and waits for the locks of such a session, succeeds. The client must have no other
// work in its transactions. LostClient is for sessions that no other time limit of the server ends. The
// settings of TCP have no effect on a Unix socket.
const LostClient = `set_config('tcp_keepalives_idle', '30', false), set_config('tcp_keepalives_interval', '10', false),
	set_config('tcp_keepalives_count', '3', false), set_config('tcp_user_timeout', '60000', false),
	set_config('idle_in_transaction_session_timeout', '3000', false)`
