import { get_forecast, type GetForecastInput } from "host:mcp-weather";
interface Day<T> extends Base { name?: string; [key: string]: any }
abstract class Report<T> implements Day<T> { private readonly x?: number = 1; constructor(public y: string) { super() } }
export const handler = async <T,>(input: GetForecastInput, b?: T): Promise<
  string[]> => {
  const days = (await get_forecast({ location: "Łódź 😀" }))!.days as Day<T>[];
  return days.filter((day) => /[/]/.test(day.name!)).map(({ name }) => `${name}` satisfies string);
};
