var z={zh:"zh-2b83dad3e5.json"};export{z as a};
