var c={zh:"zh-84c44f150d.json"};export{c as a};
