-- For wrk: what to send, and what to print in the end. Nothing here runs per request.
wrk.method = "POST"
wrk.headers["x-api-key"] = "bench"

done = function(summary, latency)
  local e = summary.errors
  io.write(string.format('result {"requests":%d,"micros":%d,"p50":%d,"p99":%d,"errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.status + e.timeout))
end
