import * as weather from "host:mcp-weather";
const { get_forcast, ...rest } = await import("host:mcp-weather");
if (weather.nope?.() ?? "x" in weather) weather["get-forecast"]({});
try { require("host:nothing").a() } catch { for (const [a] of [[1]]) weather.default.alerts(a) }
export default function handler(input) { return get_forcast(input) / 2 }
